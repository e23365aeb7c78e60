# SPDX-License-Identifier: Apache-2.0
"""The programs that Benchmarks/faults compares. A Run is one of them in one fault: begin, stop in the middle or kill, go on; and its outcomes, each
True, False or None (hangs). Each is called as a careful user would: with retries, time limits, and its own way to resume."""
import os, re, signal, socket, subprocess, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 45  # seconds until a program that neither succeeds nor fails "hangs"
NAME = "file.bin"
started, started_lock = [], threading.Lock()

def start(command, environment, **options):
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=options.pop("stdout", subprocess.DEVNULL),
                               stderr=subprocess.DEVNULL, **options)
    with started_lock:
        started.append(process)
    return process

def stop(process, how=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

def end_all():
    with started_lock:
        for process in started:
            if process.poll() is None:
                process.kill()

class Run:
    """A program that is one process for each download; how it is called is in `command`."""

    def __init__(self, root, variant=()):
        self.root, self.variant, self.work = root, list(variant), []
        self.folder = f"{root}/a/b/c"
        for folder in (self.folder, f"{root}/home", f"{root}/run"):
            os.makedirs(folder, mode=0o700)
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": f"{root}/home", "XDG_RUNTIME_DIR": f"{root}/run", "TMPDIR": f"{root}/run"}

    def begin(self, url, again=False, **wishes):
        self.work.append(start(self.command(url, again, **wishes), self.environment, cwd=self.folder))

    def stop(self):  # as by Ctrl-C
        stop(self.work.pop(), signal.SIGINT)

    def kill(self):
        stop(self.work.pop(), signal.SIGKILL)

    def go_on(self, url):
        self.begin(url, again=True)

    def renew(self, url, refused):
        self.outcomes(PATIENCE)
        self.work.clear()
        self.begin(url, again=True)

    again_after_kill = go_on

    def outcomes(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        for process in self.work:
            try:
                process.wait(max(0.05, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        return [None if process.poll() is None else process.poll() == 0 for process in self.work]

    def end(self):
        for process in self.work:
            stop(process, signal.SIGKILL)

class Curl(Run):
    needs = ["curl"]

    def command(self, url, again, headers={}, server_names=False, beside=False, expect=None):
        return ["curl", "-fsSL", "--retry", "5", "--retry-delay", "1", "--retry-all-errors", "--speed-limit", "1", "--speed-time", "5",
                *(["-C", "-"] if again else []), *(["--no-clobber"] if beside else []), *[f"-H{name}: {value}" for name, value in headers.items()],
                *(["-O", "-J"] if server_names else ["-o", f"{self.folder}/{NAME}"]), url]

class Wget(Run):
    needs = ["wget"]
    extra = ["--retry-on-http-error=429,503"]

    def command(self, url, again, headers={}, server_names=False, beside=False, expect=None):
        return [*self.needs, "-q", "--no-hsts", "--tries=5", "--waitretry=1", "--timeout=5", *self.extra, *(["-c"] if again else []),
                *[f"--header={name}: {value}" for name, value in headers.items()], *(["--content-disposition"] if server_names else []), "-P", self.folder, url]

class Wget2(Wget):
    needs = ["wget2"]
    extra = []  # has no option for it

class Aria2(Run):
    needs = ["aria2c"]

    def command(self, url, again, headers={}, server_names=False, beside=False, expect=None):
        return ["aria2c", "-q", "--no-conf", "--file-allocation=none", "--max-tries=5", "--retry-wait=1", "--timeout=5", "--always-resume=false",
                *(self.variant or ["-x1", "-s1", "--auto-save-interval=1"]), *([] if beside or server_names else ["-c"]), *[f"--header={name}: {value}" for name, value in headers.items()],
                "-d", self.folder, *([] if server_names else ["-o", NAME]), url]

class OnBus(Run):
    """A daemon on a private session bus."""

    def __init__(self, root, variant=()):
        super().__init__(root, variant)
        with open(f"{root}/bus.conf", "w") as file:
            file.write('<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">'
                       f'<busconfig><type>session</type><listen>unix:path={root}/bus</listen><auth>EXTERNAL</auth><policy context="default">'
                       '<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>')
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={root}/bus"
        self.bus = start(["dbus-daemon", f"--config-file={root}/bus.conf", "--nofork", "--nopidfile"], self.environment)
        while self.bus.poll() is None:  # the socket is there a moment before it listens
            with socket.socket(socket.AF_UNIX) as client:
                if client.connect_ex(f"{root}/bus") == 0:
                    break
            time.sleep(0.02)
        self.start_daemon()

    def start_daemon(self):
        self.daemon = start(self.daemon_command(), self.environment, cwd=self.root)
        self.ask("gdbus", "wait", "--session", "--timeout", "10", self.service)

    def ask(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30).stdout.strip()

    def kill(self):
        stop(self.daemon, signal.SIGKILL)

    def end(self):
        super().end()
        stop(self.daemon)
        stop(self.bus)

class Lomiri(OnBus):
    needs = ["lomiri-download-manager", "gdbus", "dbus-daemon"]
    service = "com.lomiri.applications.Downloader"

    def start_daemon(self):
        super().start_daemon()
        self.paths, self.signals = [], f"{self.root}/signals"
        self.work = [start(["gdbus", "monitor", "--session", "--dest", self.service], self.environment, stdout=open(self.signals, "a"))]
        time.sleep(0.5)

    def daemon_command(self):
        return ["lomiri-download-manager", "-disable-timeout"]

    def call(self, path, method, *arguments):
        return self.ask("gdbus", "call", "--session", "--dest", self.service, "--object-path", path, "--method", f"com.lomiri.applications.{method}", *arguments)

    def begin(self, url, again=False, headers={}, server_names=False, beside=False, expect=None):
        where = "{}" if server_names else f"{{'local-path': <'{self.folder}/{NAME}'>}}"
        answer = self.call("/", "DownloadManager.createDownload", f"('{url}', '', '', @a{{sv}} {where}, @a{{ss}} {headers or '{}'})")
        path = re.search(r"'(/[^']+)'", answer)
        self.paths.append(path[1] if path else "")
        if server_names:
            self.call(self.paths[-1], "Download.setDestinationDir", self.folder)
        self.call(self.paths[-1], "Download.start")

    def stop(self):
        self.call(self.paths[-1], "Download.pause")

    def go_on(self, url):
        self.call(self.paths[-1], "Download.resume")

    def again_after_kill(self, url):
        stop(self.work.pop(), signal.SIGKILL)
        self.start_daemon()
        time.sleep(2)
        self.begin(url)

    def renew(self, url, refused):
        self.outcomes(PATIENCE)
        self.paths.clear()
        self.begin(url)

    def outcome(self, path, said):
        start = re.escape(path) + r": com\.lomiri\.applications\.Download\."
        if path and re.search(start + "finished ", said):
            return True
        return False if not path or re.search(start + r"(error|\w+Error|canceled) ", said) else None

    def outcomes(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while True:
            said = open(self.signals).read()
            found = [self.outcome(path, said) for path in self.paths]
            if None not in found or time.monotonic() > end:
                return found
            time.sleep(0.1)

class Todoku(OnBus):
    needs = ["gdbus", "dbus-daemon"]
    service = "org.todoku.Downloader1"
    programs = f"{HERE}/../.build/programs"

    def daemon_command(self):
        return [f"{self.programs}/todokud"]

    def todoku(self, *arguments):
        return [f"{self.programs}/todoku", *arguments]

    def begin(self, url, again=False, headers={}, server_names=False, beside=False, expect=None):
        where = ["--directory", self.folder] if server_names else ["-o", f"{self.folder}/{NAME}"]
        self.work.append(start(self.todoku("get", "-q", "--renewable", "--stall-timeout", "5s", *self.variant, *where, *[f"--header={name}: {value}" for name, value in headers.items()],
                                           *(["--expect-type", expect] if expect else []), url), self.environment))

    def stop(self):
        self.ask(*self.todoku("pause", "1"))

    def go_on(self, url):
        self.ask(*self.todoku("resume", "1"))

    def again_after_kill(self, url):  # the download is there, and goes on: nothing but to wait for it
        stop(self.work.pop(), signal.SIGKILL)
        self.start_daemon()
        self.work.append(start(self.todoku("wait", "-q", "1"), self.environment))

    def renew(self, url, refused):
        refused.wait(PATIENCE)
        time.sleep(0.5)
        self.ask(*self.todoku("renew", "1", url))

PROGRAMS = {"curl": Curl, "wget": Wget, "wget2": Wget2, "aria2": Aria2, "lomiri": Lomiri, "todoku": Todoku}
