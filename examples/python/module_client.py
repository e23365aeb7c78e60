#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""A client of Todoku with todoku.py, the module beside it.

`module_client.py URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
continues, and `module_client.py --again URL` waits for it. The exit status is 0 if the download finished, and 1 if it failed.
"""
import argparse
import hashlib
import os
import sys

import todoku


def main(url, folder, again):
    service = todoku.Todoku("org.example.ModuleClient")
    token = hashlib.sha256(url.encode()).hexdigest()
    download = service.at(token)
    if not again:
        former = download.status()
        if former and former.has_ended:
            download.remove()  # it still has the token: the next call would return it
        service.download(url, token=token, directory=folder and os.path.abspath(folder))
        print("queued", download.path, flush=True)
    received = 0
    for status in download.watch():
        if status.received != received:
            received = status.received
            print(f"progress {received} of {status['Total']}", flush=True)  # -1 while the server has not told the total
    print("finished", download.wait(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Downloads URL to FOLDER.")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    parser.add_argument("--again", action="store_true", help="find the download of an earlier run, and wait for it")
    given = parser.parse_args()
    try:
        main(given.url, given.folder, given.again)
    except todoku.TodokuError as error:
        print(f"failed {error}", flush=True)
        sys.exit(1)
