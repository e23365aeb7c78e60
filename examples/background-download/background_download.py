#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A download in the background: one window with a label, a progress bar and a button.

`background_download.py [URL]`. Press the button, and close the window whenever you like: Todoku goes on with the download, shows a toast when it
is there, and starts the app for it (org.example.BackgroundDownload.service), without a window. Opened again, the window finds its download as it is
by then: under way, or done. What the label says is printed, too.
"""
import sys

import gi

gi.require_version("Gtk", "4.0")
from gi.repository import Gio, GLib, Gtk

ID = "org.example.BackgroundDownload"
URL = "https://deb.debian.org/debian/ls-lR.gz"
TODOKU = "org.todoku.Downloader1"
MANAGER = "/org/todoku/Downloader1"
DOWNLOAD = "org.todoku.Download1"
TAG, TOKEN = "background", "the_one"
# With app and token, the path is known before the call, so no signal from there is missed. All but letters and digits are escaped.
PATH = "/".join([MANAGER, "download", "by_token", ID.replace(".", "_2e"), TOKEN.replace("_", "_5f")])


class App(Gtk.Application):
    def __init__(self, url):
        super().__init__(application_id=ID)
        self.url = url
        self.window = None

    def do_startup(self):
        Gtk.Application.do_startup(self)
        self.set_inactivity_timeout(1_000)  # started for an end, without a window
        ended = Gio.SimpleAction.new("download-ended", GLib.VariantType.new("(osss)"))
        ended.connect("activate", lambda _, parameter: self.download_ended(*parameter.unpack()))
        self.add_action(ended)

    def call(self, path, interface, method, arguments=None, then=lambda answer: None):
        """Calls the service, which the bus starts where it does not run, and then `then` with its answer."""

        def answered(bus, result):
            self.release()
            try:
                then(bus.call_finish(result).unpack())
            except GLib.Error as error:
                self.show(error.message.split(": ", 1)[-1])  # behind the error's name

        self.hold()
        self.get_dbus_connection().call(TODOKU, path, interface, method, arguments, None, Gio.DBusCallFlags.NONE, -1, None, answered)

    # The window

    def do_activate(self):
        if self.window:
            return self.window.present()
        self.label = Gtk.Label(wrap=True)
        self.bar = Gtk.ProgressBar()
        self.button = Gtk.Button(label="Download", vexpand=True)
        self.button.connect("clicked", self.clicked)
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=12, margin_top=18, margin_bottom=18, margin_start=18, margin_end=18)
        for widget in (self.label, self.bar, self.button):
            box.append(widget)
        self.window = Gtk.ApplicationWindow(application=self, title="Background download", default_width=420, default_height=220, child=box)
        self.window.set_titlebar(Gtk.HeaderBar())
        self.window.connect("notify::is-active", lambda *_: self.tell_foreground())
        self.window.connect("close-request", self.closed)
        self.window.present()
        # First listen, then look: what happens in between comes twice rather than not at all.
        self.subscription = self.get_dbus_connection().signal_subscribe(
            TODOKU, None, None, PATH, None, Gio.DBusSignalFlags.NONE, lambda *signal: self.heard(signal[4], signal[5].unpack())
        )
        self.look()

    def closed(self, _):
        self.get_dbus_connection().signal_unsubscribe(self.subscription)
        self.window = None

    def show(self, text, fraction=None, may_start=True):
        print(text, flush=True)
        if not self.window:
            return
        self.label.set_label(text)
        self.button.set_sensitive(may_start)
        if fraction is not None:
            self.bar.set_fraction(fraction)

    def tell_foreground(self):
        """While the window is in front it shows what happens itself, and no toast is needed."""
        if self.window:
            self.call(MANAGER, TODOKU, "SetForeground", GLib.Variant("(sb)", (ID, self.window.is_active())))

    # The download

    def look(self):
        """Finds the download of an earlier run."""
        wanted = ({"app": GLib.Variant("s", ID), "tag": GLib.Variant("s", TAG)}, ["State", "Received", "Total", "Path", "Error"])
        self.call(MANAGER, TODOKU, "Describe", GLib.Variant("(a{sv}as)", wanted), self.found)

    def found(self, answer):
        if not answer[0]:
            return self.show("Not downloaded yet", 0)
        _, now = answer[0][0]
        if now["State"] == "finished":
            self.show(f"Downloaded: {now['Path']}", 1)
        elif now["State"] in ("failed", "cancelled"):
            self.show(f"Not downloaded: {now['Error'][1]}")
        else:
            self.progress(now["Received"], now["Total"])

    def progress(self, received, total):
        known = total > 0  # -1: the server has not told
        self.show(f"{received} of {total} bytes" if known else f"{received} bytes", received / total if known else 0, may_start=False)

    def clicked(self, _):
        """Once the answer is there the download is on disk, whatever becomes of us. One that has ended makes room first."""
        self.button.set_sensitive(False)
        self.tell_foreground()
        wanted = GLib.Variant("(a{sv})", ({"app": GLib.Variant("s", ID), "tag": GLib.Variant("s", TAG)},))
        self.call(MANAGER, TODOKU, "List", wanted, lambda answer: self.start(answer[0]))

    def start(self, former):
        for download in former:
            self.call(download, DOWNLOAD, "Remove", GLib.Variant("(b)", (False,)))
        options = {"app": ID, "token": TOKEN, "tag": TAG, "activate": ID}
        options = {key: GLib.Variant("s", value) for key, value in options.items()}
        self.call(MANAGER, TODOKU, "Download", GLib.Variant("(sa{sv})", (self.url, options)))

    def heard(self, member, arguments):
        if member == "Progress":
            self.progress(arguments[1], arguments[2])
        elif member == "Finished":
            self.show(f"Downloaded: {arguments[0]}", 1)
        elif member == "Completed" and arguments[0]:
            self.show(f"Not downloaded: {arguments[1]}")

    def download_ended(self, download, outcome, path, error):
        """Todoku calls this at the end, whether there is a window or not. Here the file would be taken over; only then it is acknowledged."""
        print(f"{outcome}: {path or error}", flush=True)
        self.call(download, DOWNLOAD, "Acknowledge")


if __name__ == "__main__":
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    urls = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    sys.exit(App(*(urls or [URL])[:1]).run(sys.argv[:1] + options))
