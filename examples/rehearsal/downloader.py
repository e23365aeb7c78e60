#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A small app that downloads a file, and tells the user how the download ends: downloader.py URL [SHA256]

The exit status is 0 if the file is there, and 1 if not. `test_downloader.py` tests the app with downloads that go wrong.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))  # copy todoku.py beside your program instead
import todoku
from gi.repository import Gio, GLib


def fresh_link(url):
    """Your server's answer to "this link has expired". The server of a rehearsal accepts the query “renewed”."""
    return url + "?renewed"


def replace_url(service, download, url):
    arguments = GLib.Variant("(sa{sv})", (url, {}))
    service.bus.call_sync(
        todoku.SERVICE, download.path, todoku.DOWNLOAD, "ReplaceUrl", arguments, None, Gio.DBusCallFlags.NONE, 60_000, None
    )


def save(url, digest):
    service = todoku.Todoku("org.example.Downloader")
    # With a token, the call may be repeated, and the app finds the download again after its own restart.
    download = service.download(
        url, token="file", checksum=digest and f"sha256:{digest}", renewable=True, stall_timeout=2000, if_exists="replace"
    )
    told = set()
    for status in download.watch():
        reason = status["WaitReason"]
        if reason and reason not in told:
            told.add(reason)
            print("waiting:", reason, flush=True)
            if reason == "needs-url":
                replace_url(service, download, fresh_link(url))
    return download.wait()


def main(url, digest=None):
    try:
        print("saved", save(url, digest))
        return 0
    except todoku.TodokuError as error:
        if error.name == "ChecksumMismatch":
            print("this is another file than the one that was promised")
        elif error.details.get("http-status") == 404:
            print("the server does not have this file any more")
        else:
            print("failed:", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
