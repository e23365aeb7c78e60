#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A client of Todoku with dasbus 1.7 (the package python3-dasbus).

`dasbus_client.py URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
continues, and `dasbus_client.py --again URL` waits for it; `--cancel URL` cancels it. The exit status is 0 if the download finished or was
cancelled by `--cancel`, 1 if it failed, and 69 if Todoku is missing. An existing file of the same name is replaced.
"""
import argparse
import hashlib
import os
import sys
import time

from dasbus.connection import SessionMessageBus
from dasbus.error import DBusError
from dasbus.loop import EventLoop
from dasbus.typing import Str, get_native, get_variant
from gi.repository import GLib

APP = "org.example.DasbusClient"
TODOKU = "org.todoku.Downloader1"
MANAGER = "/org/todoku/Downloader1"
NO_REPLY = "org.freedesktop.DBus.Error.NoReply"  # the service exited or crashed before it answered
UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"
# Beginnings of names: the bus knows no such service, or cannot start it.
MISSING = ("org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.Spawn.", "org.freedesktop.systemd1.")
MOST_LOSSES = 6  # in a row: then the service does not work
ERRORS = (DBusError, GLib.Error)  # of the service and the bus; of the connection


class Client:
    def __init__(self, url):
        self.loop = EventLoop()
        self.url, self.status, self.losses, self.asked = url, 1, 0, 0.0
        # A letter, then letters and digits: such a token needs no escaping in the object path.
        self.token = "url" + hashlib.sha256(url.encode()).hexdigest()[:32]
        self.path = "/".join([MANAGER, "download", "by_token", APP.replace(".", "_2e"), self.token])
        # A proxy introspects its object when its first member is used. So the download's is of use once the download exists.
        bus = SessionMessageBus()
        self.manager, self.download = bus.get_proxy(TODOKU, MANAGER), bus.get_proxy(TODOKU, self.path)

    def repeat(self, body):
        """Repeats the calls once if the service exits before it answers. Each call here may be repeated."""
        try:
            return body()
        except DBusError as error:
            if error.dbus_name != NO_REPLY:
                raise
        return body()

    def queue(self, folder):
        """After the answer, the download is on disk. The token makes a repeated call return the same download."""
        self.repeat(self.remove_ended)
        options = {"app": APP, "token": self.token, "if-exists": "replace", **({"directory": folder} if folder else {})}
        options = {key: get_variant(Str, value) for key, value in options.items()}
        print("queued", self.repeat(lambda: self.manager.Download(self.url, options)), flush=True)

    def remove_ended(self):
        """An ended download of an earlier run still has the token: the call Download would return it."""
        try:
            if self.download.State in ("finished", "failed", "cancelled"):
                self.download.Remove(False)
        except DBusError as error:
            if error.dbus_name != UNKNOWN_OBJECT:
                raise

    def progress(self, received, total):
        if received:
            print(f"progress {received} of {total}", flush=True)  # the total is -1 while the server has not told it

    def waits(self, reason):
        if reason:
            print(f"waiting {reason}", flush=True)  # docs/dbus.md has the reasons; empty: it does not wait

    def described(self, answer):
        """This answer comes in order with the signals: what it says is newer than the signals before it."""
        try:
            now = get_native(answer())
            self.progress(now["Received"], now["Total"])
            self.waits(now["WaitReason"])
        except ERRORS as error:
            if getattr(error, "dbus_name", "") != NO_REPLY:
                return self.failed(error)
        self.wait()

    def wait(self):
        """dasbus sets no time limit. With `callback`, the call does not block the signals."""
        self.asked = time.monotonic()
        self.download.Wait({}, callback=self.answered)

    def answered(self, answer):
        try:
            print("finished", answer(), flush=True)
            self.status = 0
            self.loop.quit()
        except ERRORS as error:
            self.losses = 1 if time.monotonic() - self.asked > 30 else self.losses + 1
            if getattr(error, "dbus_name", "") == NO_REPLY and self.losses <= MOST_LOSSES:
                # The download resumes with the service, and the next call starts the service.
                GLib.timeout_add_seconds(0 if self.losses == 1 else 2 ** (self.losses - 2), self.wait)
            else:
                self.failed(error)

    def failed(self, error):
        name = getattr(error, "dbus_name", "") or error.domain
        message = str(error) if isinstance(error, DBusError) else error.message
        if name.startswith(MISSING):
            self.status, message = 69, f"Todoku is not installed, or cannot be started: {message}"
        print(f"failed {name.rsplit('.', 1)[-1]}: {message}", flush=True)
        self.loop.quit()

    def cancel(self):
        self.download.Cancel()
        print("cancelled", self.path, flush=True)
        return 0

    def run(self, folder, again, cancel):
        try:
            if cancel:
                return self.cancel()
            if not again:
                self.queue(folder)
            # Subscribe first, then read: a change between the two is reported twice rather than never.
            self.download.Progress.connect(lambda written, received, total: self.progress(received, total))
            self.download.PropertiesChanged.connect(lambda _, changed, gone: self.waits(get_native(changed).get("WaitReason")))
            self.download.GetAll("org.todoku.Download1", callback=self.described)
            self.loop.run()
        except ERRORS as error:
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
