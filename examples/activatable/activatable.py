#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""An app that comes and goes.

`activatable.py URL…` queues downloads with Todoku and quits. When one has ended, Todoku calls the app, which the bus starts for that
(org.example.Activatable.service); the app writes the file's SHA-256 beside it, and only then says that it has taken it. Should it be
killed before, it is called again: so what it does must come to the same when it is done twice.
"""
import concurrent.futures
import hashlib
import os
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib

ID = "org.example.Activatable"
TODOKU = "org.todoku.Downloader1"


def call(path, interface, method, arguments=None):
    """Calls the service, which the bus starts where it does not run."""
    bus = Gio.bus_get_sync(Gio.BusType.SESSION)
    return bus.call_sync(TODOKU, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, -1).unpack()


def queue(url):
    """Once this returns, the download is on disk. The same token for the same URL: to queue it twice is to queue it once."""
    options = {
        "app": GLib.Variant("s", ID),
        "token": GLib.Variant("s", hashlib.sha256(url.encode()).hexdigest()),
        "tag": GLib.Variant("s", "sums"),
        "activate": GLib.Variant("s", ID),
    }
    return call("/org/todoku/Downloader1", TODOKU, "Download", GLib.Variant("(sa{sv})", (url, options)))[0]


class App(Gio.Application):
    """Gio.Application has org.freedesktop.Application on the bus, at /org/example/Activatable; an action of it is what Todoku calls."""

    def __init__(self):
        super().__init__(application_id=ID, flags=Gio.ApplicationFlags.IS_SERVICE)
        self.set_inactivity_timeout(10_000)  # it stays 10 s for the next one
        self.worker = concurrent.futures.ThreadPoolExecutor(max_workers=1)  # the files one after the other
        action = Gio.SimpleAction.new("download-ended", GLib.VariantType.new("(osss)"))
        action.connect("activate", lambda _, parameter: self.download_ended(*parameter.unpack()))
        self.add_action(action)

    def download_ended(self, *ended):
        """Returns at once, so that the app answers further calls. The app is held until the work is done; otherwise it would quit."""
        self.hold()
        self.worker.submit(self.work, *ended)

    def work(self, download, outcome, path, error):
        """In a thread of its own."""
        try:
            if outcome == "finished":
                self.process(path)
            else:
                print(f"{download} {outcome}: {error}", file=sys.stderr)
            self.acknowledge(download)
        except (OSError, GLib.Error) as fault:
            print(f"{download}: {fault}", file=sys.stderr)  # Todoku calls again, because nobody has acknowledged
        finally:
            GLib.idle_add(self.release)  # in the thread of the main loop

    def process(self, path):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
        with open(path + ".sha256.new", "w") as sums:
            sums.write(f"{digest.hexdigest()}  {os.path.basename(path)}\n")
        os.rename(path + ".sha256.new", path + ".sha256")

    def acknowledge(self, download):
        call(download, "org.todoku.Download1", "Acknowledge")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for url in sys.argv[1:]:
            print(queue(url))
    else:
        sys.exit(App().run(None))
