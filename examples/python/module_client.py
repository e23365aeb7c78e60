#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A client of Todoku with todoku.py, the module beside it.

`module_client.py URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
continues, and `module_client.py --again URL` waits for it; `--cancel URL` cancels it. The exit status is 0 if the download finished or was
cancelled by `--cancel`, 1 if it failed, and 69 if Todoku is missing. An existing file of the same name is replaced.
"""
import argparse
import hashlib
import os
import sys

import todoku


def main(url, folder, again, cancel):
    service = todoku.Todoku("org.example.ModuleClient")
    token = hashlib.sha256(url.encode()).hexdigest()
    download = service.at(token)
    if cancel:
        download.cancel()
        print("cancelled", download.path, flush=True)
        return
    if not again:
        former = download.status()
        if former and former.has_ended:
            download.remove()  # it still has the token: the next call would return it
        service.download(url, token=token, directory=folder, if_exists="replace")
        print("queued", download.path, flush=True)
    received, reason = 0, ""
    for status in download.watch():
        if status.wait_reason not in ("", reason):
            print(f"waiting {status.wait_reason}", flush=True)
        reason = status.wait_reason
        if status.received != received:
            received = status.received
            print(f"progress {received} of {status['Total']}", flush=True)  # -1 while the server has not told the total
    print("finished", download.wait(), flush=True)


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
    try:
        main(given.url, given.folder, given.again, given.cancel)
    except todoku.TodokuError as error:
        print(f"failed {error}", flush=True)
        sys.exit(69 if error.is_unavailable else 1)
