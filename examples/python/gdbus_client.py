#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A client of Todoku on plain Gio.

`gdbus_client.py URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
continues, and `gdbus_client.py --again URL` waits for it; `--cancel URL` cancels it. The exit status is 0 if the download finished or was
cancelled by `--cancel`, 1 if it failed, and 69 if Todoku is missing. An existing file of the same name is replaced.
"""
import argparse
import hashlib
import os
import sys
import time

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib

APP = "org.example.GdbusClient"
TODOKU = "org.todoku.Downloader1"
MANAGER = "/org/todoku/Downloader1"
DOWNLOAD = "org.todoku.Download1"
PROPERTIES = "org.freedesktop.DBus.Properties"
NO_REPLY = "org.freedesktop.DBus.Error.NoReply"  # the service exited or crashed before it answered
UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"
# Beginnings of names: the bus knows no such service, or cannot start it.
MISSING = ("org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.Spawn.", "org.freedesktop.systemd1.")
MOST_LOSSES = 6  # in a row: then the service does not work


def name_and_message(error):
    """GDBus puts the name of a D-Bus error before its message. Its own errors have no such name, but the name of their domain."""
    name = Gio.DBusError.get_remote_error(error)
    return (name, error.message.split(f"{name}: ", 1)[-1]) if name else (error.domain, error.message)


class Client:
    def __init__(self, url):
        self.loop = GLib.MainLoop()
        self.url, self.status, self.losses, self.asked = url, 1, 0, 0.0
        # A letter, then letters and digits: such a token needs no escaping in the object path.
        self.token = "url" + hashlib.sha256(url.encode()).hexdigest()[:32]
        self.path = "/".join([MANAGER, "download", "by_token", APP.replace(".", "_2e"), self.token])

    def call_once(self, path, interface, method, kind, *arguments):
        parameters = GLib.Variant(kind, arguments)
        return self.bus.call_sync(TODOKU, path, interface, method, parameters, None, Gio.DBusCallFlags.NONE, 60_000).unpack()

    def call(self, *call):
        """Repeats the call once if the service exits before it answers. Only for calls that may be repeated."""
        try:
            return self.call_once(*call)
        except GLib.Error as error:
            if name_and_message(error)[0] != NO_REPLY:
                raise
        return self.call_once(*call)

    def queue(self, folder):
        """After the answer, the download is on disk. The token makes a repeated call return the same download."""
        self.remove_ended()
        options = {"app": APP, "token": self.token, "if-exists": "replace", **({"directory": folder} if folder else {})}
        options = {key: GLib.Variant("s", value) for key, value in options.items()}
        print("queued", self.call(MANAGER, TODOKU, "Download", "(sa{sv})", self.url, options)[0], flush=True)

    def remove_ended(self):
        """An ended download of an earlier run still has the token: the call Download would return it."""
        try:
            if self.call(self.path, PROPERTIES, "Get", "(ss)", DOWNLOAD, "State")[0] in ("finished", "failed", "cancelled"):
                self.call(self.path, DOWNLOAD, "Remove", "(b)", False)
        except GLib.Error as error:
            if name_and_message(error)[0] != UNKNOWN_OBJECT:
                raise

    def told(self, *signal):
        self.progress(*signal[5].unpack()[1:])

    def changed(self, *signal):
        self.waits(signal[5].unpack()[1].get("WaitReason"))

    def waits(self, reason):
        if reason:
            print(f"waiting {reason}", flush=True)  # docs/dbus.md has the reasons; empty: it does not wait

    def progress(self, received, total):
        if received:
            print(f"progress {received} of {total}", flush=True)  # the total is -1 while the server has not told it

    def begin(self, interface, method, arguments, then):
        """Calls without blocking. Without the time limit G_MAXINT, GDBus would give up after 25 s."""
        self.bus.call(TODOKU, self.path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, GLib.MAXINT, None, then)

    def described(self, bus, result):
        """This answer comes in order with the signals: what it says is newer than the signals before it."""
        try:
            now = bus.call_finish(result).unpack()[0]
            self.progress(now["Received"], now["Total"])
            self.waits(now["WaitReason"])
        except GLib.Error as error:
            if name_and_message(error)[0] != NO_REPLY:
                return self.failed(error)
        self.wait()

    def wait(self):
        self.asked = time.monotonic()
        self.begin(DOWNLOAD, "Wait", GLib.Variant("(a{sv})", ({},)), self.answered)

    def answered(self, bus, result):
        try:
            print("finished", bus.call_finish(result).unpack()[0], flush=True)
            self.status = 0
            self.loop.quit()
        except GLib.Error as error:
            self.losses = 1 if time.monotonic() - self.asked > 30 else self.losses + 1
            if name_and_message(error)[0] == NO_REPLY and self.losses <= MOST_LOSSES:
                # The download resumes with the service, and the next call starts the service.
                GLib.timeout_add_seconds(0 if self.losses == 1 else 2 ** (self.losses - 2), self.wait)
            else:
                self.failed(error)

    def failed(self, error):
        name, message = name_and_message(error)
        if name.startswith(MISSING):
            self.status, message = 69, f"Todoku is not installed, or cannot be started: {message}"
        print(f"failed {name.rsplit('.', 1)[-1]}: {message}", flush=True)
        self.loop.quit()

    def cancel(self):
        """A repeated call would be refused if the first call did its work."""
        self.call_once(self.path, DOWNLOAD, "Cancel", "()")
        print("cancelled", self.path, flush=True)
        return 0

    def run(self, folder, again, cancel):
        try:
            self.bus = Gio.bus_get_sync(Gio.BusType.SESSION)
            if cancel:
                return self.cancel()
            # Subscribe first, then read: a change between the two is reported twice rather than never.
            flags = Gio.DBusSignalFlags.NONE
            self.bus.signal_subscribe(TODOKU, DOWNLOAD, "Progress", self.path, None, flags, self.told)
            self.bus.signal_subscribe(TODOKU, PROPERTIES, "PropertiesChanged", self.path, None, flags, self.changed)
            if not again:
                self.queue(folder)
            self.begin(PROPERTIES, "GetAll", GLib.Variant("(s)", (DOWNLOAD,)), self.described)
            self.loop.run()
        except GLib.Error as error:
            self.failed(error)
        return self.status


def utf8(text):
    """Python keeps other bytes of an argument as surrogates, which D-Bus does not carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("D-Bus carries only text in UTF-8") from None
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Downloads URL to FOLDER.")
    parser.add_argument("url", metavar="URL", type=utf8)
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=lambda folder: utf8(os.path.abspath(folder)))
    parser.add_argument("--again", action="store_true", help="find the download of an earlier run, and wait for it")
    parser.add_argument("--cancel", action="store_true", help="cancel the download of an earlier run")
    given = parser.parse_args()
    sys.exit(Client(given.url).run(given.folder, given.again, given.cancel))
