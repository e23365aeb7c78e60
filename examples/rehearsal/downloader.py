#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A small app that downloads a file, and tells the user how the download ends: downloader.py URL [SHA256]

The exit status is 0 if the file is there, and 1 if not. `test_downloader.py` tests the app with downloads that go wrong.
"""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))  # copy todoku.py beside your program instead
import todoku

MOST_LINKS = 3  # fresh links in a row without a new byte


class LinkRefused(Exception):
    """The server refuses the fresh links, too. The download still waits for a link, and the next run of the app gives it one."""


def fresh_link(url):
    """Your server's answer to "this link has expired". The server of a rehearsal accepts the query “renewed”."""
    return url + "?renewed"


def find_or_queue(service, url, digest):
    """With a token, its own name for the download, the app finds the download again after its own restart."""
    token = hashlib.sha256(f"{url} {digest}".encode()).hexdigest()
    download = service.at(token)
    # A fresh link changes the URL of the download. After that, another call with the first URL is refused as AlreadyExists.
    status = download.status()
    if status is not None:
        if status.state in ("failed", "cancelled"):  # in an earlier run; the list keeps the download for 30 days
            download.retry()  # keeps the fresh link
        return download
    return service.download(
        url, token=token, checksum=digest and f"sha256:{digest}", renewable=True, stall_timeout=2000, if_exists="replace"
    )


def save(url, digest):
    download = find_or_queue(todoku.Todoku("org.example.Downloader"), url, digest)
    told, links, received = set(), 0, -1
    for status in download.watch():
        reason = status.wait_reason
        if reason and reason not in told:
            told.add(reason)
            print("waiting:", reason, flush=True)
        if reason != "needs-url":
            continue
        now = download.status()  # the status of the watch may be older than the last fresh link
        if not now or now.wait_reason != "needs-url":
            continue
        if now.received > received:
            links, received = 0, now.received
        if links == MOST_LINKS:
            raise LinkRefused
        links += 1
        download.replace_url(fresh_link(url))
    return download.wait()


def main(url, digest=None):
    try:
        print("saved", save(url, digest))
        return 0
    except LinkRefused:
        print("the server refuses each fresh link")
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
