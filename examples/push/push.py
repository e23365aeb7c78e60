#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""An app whose server pushes its background image.

`push.py HOST FOLDER` registers: a push may fetch an image of at most 20 MiB from HOST into FOLDER. It prints what the server needs, and quits.
The server encrypts a message for the two keys (RFC 8291, with any library of Web Push) and sends it to the endpoint:

    {"url": "https://HOST/today.jpg", "sha256": "…", "size": 123456, "valid-until": 1800000000}

Todoku fetches the image. Only then is the app called, which the bus starts for that (org.example.Push.service). Should it be killed before it
answers, it is called again: so what it does must come to the same when it is done twice.
"""
import os
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib

ID = "org.example.Push"
PUSH = "org.todoku.Push1"


def call(method, arguments):
    bus = Gio.bus_get_sync(Gio.BusType.SESSION)
    return bus.call_sync(PUSH, "/org/todoku/Push1", PUSH, method, arguments, None, Gio.DBusCallFlags.NONE, -1).unpack()


def register(host, folder):
    """The app calls this at each start: the same app and name give the same registration, with its present endpoint."""
    options = {
        "hosts": GLib.Variant("as", [host]),
        "types": GLib.Variant("as", ["image/*"]),
        "max-size": GLib.Variant("t", 20 << 20),
        "directory": GLib.Variant("s", folder),
    }
    if os.environ.get("PUSH_REHEARSAL"):  # from a server on this machine
        options["allow-private"] = GLib.Variant("b", True)
    return call("Register", GLib.Variant("(ssa{sv})", (ID, "background", options)))[0]


class App(Gio.Application):
    """Gio.Application has org.freedesktop.Application on the bus, at /org/example/Push; an action of it is what Todoku calls."""

    def __init__(self):
        super().__init__(application_id=ID, flags=Gio.ApplicationFlags.IS_SERVICE)
        self.set_inactivity_timeout(10_000)  # it stays 10 s for the next one
        action = Gio.SimpleAction.new("push", GLib.VariantType.new("(sssa{sv})"))
        action.connect("activate", lambda _, parameter: self.push(*parameter.unpack()))
        self.add_action(action)

    def push(self, name, result, path, details):
        """The call is answered when this method returns, so the work must be done by then. The app cannot quit before that."""
        if result == "failed":
            print(f"{name}: {details['message']}", file=sys.stderr)
        else:
            self.show(path)

    def show(self, path):
        """One rename makes the new image the current one. Done twice, it comes to the same."""
        link = os.path.join(os.path.dirname(path), "current")
        if os.path.lexists(link + ".new"):
            os.unlink(link + ".new")
        os.symlink(os.path.basename(path), link + ".new")
        os.rename(link + ".new", link)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        registration = register(*sys.argv[1:])
        for key in "endpoint", "public-key", "auth-secret", "problem":
            print(f"{key}: {registration[key]}")
    else:
        sys.exit(App().run(None))
