#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives a headless browser for Tests/Hosts/browser: Chromium by the DevTools protocol on a pipe, Firefox by Marionette on TCP.

A driver has two tabs: one with a page of the test, and one with the extension's page of settings; and, if asked, a private window.
"""
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import time
import zipfile

CHROMIUM_ID = "cacmadanedhfdkjbogobdmpkjcncenap"
FIREFOX_ID = "browser@todoku.org"
LIMIT = 60  # seconds


class BrowserError(Exception):
    pass


def until(what, condition, limit=LIMIT):
    """Waits until the condition gives a true value, and returns the value."""
    deadline = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise BrowserError(f"{what}: not within {limit} s")
        time.sleep(0.1)


class Driver:
    """The parts of both drivers: the process, its log, and the file by which the browser finds todoku-browser."""

    program = ""
    # By the name of a case: why the browser cannot be asked for it.
    impossible = {}

    def __init__(self, session):
        self.session = session
        self.log = os.path.join(session.folder, "browser.log")
        self.process = None
        self.host_file = ""
        self.number = 0  # of the last command
        self.tabs = {}

    def begin(self, arguments, **options):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                arguments, env=self.session.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **options)

    def end(self):
        """Ends the process and all processes that it has started."""
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()

    def write_host(self, path, names):
        """Writes the native-messaging manifest of this user."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        manifest = {"name": "org.todoku.browser", "description": "Todoku", "path": self.session.host, "type": "stdio", **names}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        self.host_file = path


class Chromium(Driver):
    """Chromium, whose extension is an unpacked folder."""

    program = "chromium"
    impossible = {"case_2_menu": "the DevTools protocol chooses no entry of the browser's own menus"}
    rest = b""  # of the answers

    def start(self):
        session = self.session
        profile = os.path.join(session.folder, "chromium")
        os.makedirs(os.path.join(profile, "Default"))
        with open(os.path.join(profile, "Default", "Preferences"), "w", encoding="utf-8") as file:
            json.dump({"download": {"default_directory": session.own, "prompt_for_download": False}}, file)
        self.write_host(
            os.path.join(profile, "NativeMessagingHosts", "org.todoku.browser.json"),
            {"allowed_origins": [f"chrome-extension://{CHROMIUM_ID}/"]})
        # The browser reads commands from descriptor 3 and writes answers to 4. Ours are above, so that none is replaced.
        reads, self.commands = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())
        self.answers, writes = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())

        def give_pipes():
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        extension = session.extension("chromium")
        arguments = [
            self.program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", f"--load-extension={extension}",
            "--disable-features=DisableLoadExtensionCommandLineSwitch", "--enable-unsafe-extension-debugging", "--no-first-run",
            "--no-default-browser-check", "--disable-gpu", "--password-store=basic", "--lang=en-US", "about:blank",
        ]
        if os.geteuid() == 0:
            arguments.insert(1, "--no-sandbox")  # Chromium's sandbox refuses root
        self.begin(arguments, preexec_fn=give_pipes, pass_fds=(3, 4))
        os.close(reads)
        os.close(writes)
        try:
            until("the extension is loaded", self.has_extension, 15)
        except BrowserError:
            # Branded builds ignore --load-extension.
            self.call("Extensions.loadUnpacked", {"path": extension})
            until("the extension is loaded", self.has_extension)
        for name, url in (("page", "about:blank"), ("settings", f"chrome-extension://{CHROMIUM_ID}/options.html")):
            self.attach(name, self.call("Target.createTarget", {"url": url})["targetId"])

    def attach(self, name, target):
        self.tabs[name] = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]

    def allow_private(self):
        """Allows the extension in private windows, as a person does on the page of extensions. The extension is loaded again."""
        self.attach("extensions", self.call("Target.createTarget", {"url": "chrome://extensions/"})["targetId"])
        until("the page of extensions is shown", lambda: self.run("extensions", "typeof chrome.developerPrivate") == "object")
        # Newer versions turn off an unpacked extension that is loaded again, unless the user is a developer.
        self.run("extensions", """new Promise(done => chrome.developerPrivate.updateProfileConfiguration(
            { inDeveloperMode: true }, () => done(true)))""")
        change = json.dumps({"extensionId": CHROMIUM_ID, "incognitoAccess": True})
        fault = self.run("extensions", f"""new Promise(done => chrome.developerPrivate.updateExtensionConfiguration(
            {change}, () => done(chrome.runtime?.lastError?.message ?? '')))""")
        if fault:
            raise BrowserError(f"the extension cannot be allowed in private windows: {fault}")
        until("the extension is allowed in private windows", lambda: self.run("extensions", f"""new Promise(done =>
            chrome.developerPrivate.getExtensionInfo({json.dumps(CHROMIUM_ID)}, extension =>
                done(extension?.state === 'ENABLED' && extension.incognitoAccess.isActive)))"""))
        until("the page of settings is shown again", self.open_settings)

    def open_settings(self):
        """Opens the page of settings in a new tab; False while the extension is being loaded."""
        try:
            self.attach("settings", self.call("Target.createTarget", {"url": self.settings})["targetId"])
            return until("the page is complete", lambda: self.run(
                "settings", "document.readyState === 'complete' && typeof chrome.windows?.create === 'function'"), 5)
        except BrowserError:
            return False

    def open_private(self, url):
        """A browser context of the protocol would have a cookie store that no extension sees. So the extension opens the window."""
        before = {target["targetId"] for target in self.call("Target.getTargets")["targetInfos"]}
        self.run("settings", f"chrome.windows.create({{ incognito: true, url: {json.dumps(url)} }}).then(() => true)")

        def new_page():
            return next((target["targetId"] for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"
                         and target["url"] == url and target["targetId"] not in before), None)

        self.attach("private", until("the private window is open", new_page))

    def has_extension(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        return any(target["url"].startswith(f"chrome-extension://{CHROMIUM_ID}/") for target in targets)

    def call(self, method, parameters=None, tab=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if tab:
            message["sessionId"] = self.tabs[tab]
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while True:
            while b"\0" in self.rest:
                text, self.rest = self.rest.split(b"\0", 1)
                answer = json.loads(text)
                if answer.get("id") == self.number:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error'].get('message')}")
                    return answer["result"]
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            portion = os.read(self.answers, 1 << 20) if ready else b""
            if not portion:
                raise BrowserError(f"{method}: the browser does not answer")
            self.rest += portion

    def run(self, tab, script):
        """The value of a JavaScript expression in a tab."""
        answer = self.call("Runtime.evaluate", {
            "expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": True}, tab)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def go(self, tab, url):
        self.call("Page.navigate", {"url": url}, tab)

        def is_shown():
            try:
                return self.run(tab, "document.readyState === 'complete' && location.href") == url
            except BrowserError:
                return False  # the page before is just leaving

        until(f"{url} is shown", is_shown)

    @property
    def settings(self):
        return f"chrome-extension://{CHROMIUM_ID}/options.html"


class Firefox(Driver):
    """Firefox ESR, whose extension is installed until the end of the process."""

    program = "firefox-esr"

    def start(self):
        session = self.session
        profile = os.path.join(session.folder, "firefox")
        os.makedirs(profile)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        preferences = {
            "marionette.port": port, "browser.download.folderList": 2, "browser.download.dir": session.own,
            "browser.download.useDownloadDir": True, "browser.download.always_ask_before_handling_new_types": False,
            "browser.shell.checkDefaultBrowser": False, "browser.startup.page": 0, "datareporting.policy.dataSubmissionEnabled": False,
            "app.update.enabled": False, "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
            "browser.safebrowsing.downloads.enabled": False, "toolkit.telemetry.enabled": False,
        }
        with open(os.path.join(profile, "user.js"), "w", encoding="utf-8") as file:
            for key, value in preferences.items():
                file.write(f"user_pref({json.dumps(key)}, {json.dumps(value)});\n")
        self.write_host(
            os.path.join(session.home, ".mozilla", "native-messaging-hosts", "org.todoku.browser.json"),
            {"allowed_extensions": [FIREFOX_ID]})
        self.begin([
            self.program, "--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile", profile, "about:blank"])
        self.connection = until("Firefox listens", lambda: self.connect(port))
        self.read()  # who it is
        self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {}}})
        self.call("Addon:Install", {"path": self.packed(), "temporary": True})
        self.call("Marionette:SetContext", {"value": "chrome"})
        self.host = self.call("WebDriver:ExecuteScript", {
            "script": "return WebExtensionPolicy.getByID(arguments[0]).mozExtensionHostname", "args": [FIREFOX_ID]})["value"]
        self.allow_sites()
        self.call("Marionette:SetContext", {"value": "content"})
        self.tabs = {"page": self.call("WebDriver:GetWindowHandle")["value"]}
        self.tabs["settings"] = self.call("WebDriver:NewWindow", {"type": "tab"})["handle"]
        self.go("settings", self.settings)

    @property
    def settings(self):
        return f"moz-extension://{self.host}/options.html"

    def packed(self):
        """The extension as an archive, which every version installs."""
        folder, archive = self.session.extension("firefox"), os.path.join(self.session.folder, "todoku.xpi")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for parent, _, names in os.walk(folder):
                for name in names:
                    path = os.path.join(parent, name)
                    file.write(path, os.path.relpath(path, folder))
        return archive

    def allow_sites(self):
        """Before version 127, Firefox does not grant the sites of the manifest when it installs the extension."""
        script = """
            const [id, origins, done] = arguments;
            const { ExtensionPermissions } = ChromeUtils.importESModule("resource://gre/modules/ExtensionPermissions.sys.mjs");
            ExtensionPermissions.add(id, { permissions: [], origins }, WebExtensionPolicy.getByID(id).extension)
                .then(() => done(""), error => done(String(error)));
        """
        fault = self.call("WebDriver:ExecuteAsyncScript", {"script": script, "args": [FIREFOX_ID, ["http://*/*", "https://*/*"]]})["value"]
        if fault:
            raise BrowserError(f"the sites cannot be allowed: {fault}")

    def allow_private(self):
        """Allows the extension in private windows. The extension is loaded again, which closes its tabs."""
        script = """
            const [id, done] = arguments;
            const { AddonManager } = ChromeUtils.importESModule("resource://gre/modules/AddonManager.sys.mjs");
            const { ExtensionPermissions } = ChromeUtils.importESModule("resource://gre/modules/ExtensionPermissions.sys.mjs");
            ExtensionPermissions.add(id, { permissions: ["internal:privateBrowsingAllowed"], origins: [] })
                .then(() => AddonManager.getAddonByID(id)).then(addon => addon.reload()).then(() => done(""), error => done(String(error)));
        """
        self.call("WebDriver:SwitchToWindow", {"handle": self.tabs["page"]})
        self.call("Marionette:SetContext", {"value": "chrome"})
        fault = self.call("WebDriver:ExecuteAsyncScript", {"script": script, "args": [FIREFOX_ID]})["value"]
        if fault:
            raise BrowserError(f"the extension cannot be allowed in private windows: {fault}")
        until("the extension is allowed in private windows", lambda: self.call("WebDriver:ExecuteScript", {
            "script": "return WebExtensionPolicy.getByID(arguments[0])?.privateBrowsingAllowed ?? false", "args": [FIREFOX_ID]})["value"])
        self.call("Marionette:SetContext", {"value": "content"})
        self.tabs["settings"] = self.call("WebDriver:NewWindow", {"type": "tab"})["handle"]
        self.go("settings", self.settings)

    def open_private(self, url):
        self.call("WebDriver:SwitchToWindow", {"handle": self.tabs["page"]})
        self.tabs["private"] = self.call("WebDriver:NewWindow", {"type": "window", "private": True})["handle"]
        self.go("private", url)

    def choose_in_menu(self, identifier):
        """Opens the menu of an element of the page with the right button, and chooses the extension's entry."""
        place = self.run("page", f"""(box => ({{ x: Math.round(box.x + box.width / 2), y: Math.round(box.y + box.height / 2) }}))(
            document.getElementById({json.dumps(identifier)}).getBoundingClientRect())""")
        self.call("WebDriver:PerformActions", {"actions": [{
            "type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [
                {"type": "pointerMove", "origin": "viewport", "duration": 0, **place},
                {"type": "pointerDown", "button": 2}, {"type": "pointerUp", "button": 2},
            ]}]})
        # As Firefox makes the identifiers of an extension's entries.
        entry = FIREFOX_ID.replace("@", "_").replace(".", "_") + "-menuitem"
        script = """
            const menu = document.getElementById("contentAreaContextMenu");
            const entry = menu.state === "open" ? menu.querySelector(`menuitem[id^="${arguments[0]}"]`) : null;
            if (entry)
                menu.activateItem(entry);
            return entry !== null;
        """
        self.call("Marionette:SetContext", {"value": "chrome"})
        try:
            until("the menu has the extension's entry", lambda: self.call(
                "WebDriver:ExecuteScript", {"script": script, "args": [entry]})["value"])
        finally:
            self.call("Marionette:SetContext", {"value": "content"})

    def connect(self, port):
        try:
            return socket.create_connection(("127.0.0.1", port), LIMIT)
        except OSError:
            return None

    def read(self):
        """A message: its length, a colon, and JSON."""
        length = b""
        while not length.endswith(b":"):
            byte = self.connection.recv(1)
            if not byte:
                raise BrowserError("Firefox has closed its connection")
            length += byte
        count, text = int(length[:-1]), b""
        while len(text) < count:
            portion = self.connection.recv(count - len(text))
            if not portion:
                raise BrowserError("Firefox has closed its connection")
            text += portion
        return json.loads(text)

    def call(self, command, parameters=None):
        self.number += 1
        text = json.dumps([0, self.number, command, parameters or {}]).encode()
        self.connection.sendall(str(len(text)).encode() + b":" + text)
        while True:
            kind, number, error, result = self.read()
            if kind == 1 and number == self.number:
                if error:
                    raise BrowserError(f"{command}: {error.get('message')}")
                return result

    def run(self, tab, script):
        self.call("WebDriver:SwitchToWindow", {"handle": self.tabs[tab]})
        return self.call("WebDriver:ExecuteScript", {"script": f"return ({script})", "args": []})["value"]

    def go(self, tab, url):
        self.call("WebDriver:SwitchToWindow", {"handle": self.tabs[tab]})
        self.call("WebDriver:Navigate", {"url": url})


DRIVERS = {driver.program: driver for driver in (Firefox, Chromium)}
