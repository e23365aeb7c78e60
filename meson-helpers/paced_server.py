#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves files of zeros on 127.0.0.1 as slowly as it is told, for pictures and recordings. Prints its port as the first line.

    paced_server.py NAME=SIZE@RATE[+HEAD]… NAME=STATUS:SECONDS…

NAME       the last part of the URL. The host and the folders do not matter: as the proxy of a service, this server stands for any host
SIZE@RATE  bytes, and bytes per second; both may end in K or M, powers of 1024
HEAD       this many bytes come at once
STATUS     every request is refused with this status, and with this Retry-After

It sends no validator, so that each file comes over one connection. It ends with its standard input, if that is a pipe.
"""
import http.server
import os
import re
import stat
import sys
import threading
import time
import urllib.parse

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
STEP = 0.05  # seconds between two writes
RULE = re.compile(
    r"(?P<name>[^=/]+)=(?:(?P<size>\d+)(?P<size_unit>[KM]?)@(?P<rate>\d+)(?P<rate_unit>[KM]?)(?:\+(?P<head>\d+)(?P<head_unit>[KM]?))?"
    r"|(?P<status>[45]\d\d):(?P<seconds>\d+))"
)


class Refusal:
    def __init__(self, rule):
        self.status, self.seconds = int(rule["status"]), rule["seconds"]

    def answer(self, request):
        request.send_response(self.status)
        request.send_header("Retry-After", self.seconds)
        request.send_header("Content-Length", "0")
        request.end_headers()


class File:
    def __init__(self, rule):
        self.size, self.rate, self.head = (int(rule[key] or 0) * UNITS[rule[f"{key}_unit"] or ""] for key in ("size", "rate", "head"))
        if self.size == 0 or self.rate == 0 or self.head > self.size:
            sys.exit(f"paced_server.py: “{rule.group()}”: size and rate must be above 0, and the head must not be above the size")

    def answer(self, request):
        request.send_response(200)
        request.send_header("Content-Type", "application/octet-stream")
        request.send_header("Content-Length", str(self.size))
        request.end_headers()
        begun, sent = time.monotonic(), 0
        while sent < self.size:
            due = min(self.size, self.head + int((time.monotonic() - begun + STEP) * self.rate))
            request.wfile.write(bytes(due - sent))
            sent = due
            time.sleep(STEP)


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers = {}

    def do_GET(self):
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path.rpartition("/")[2])
        answer = self.answers.get(name)
        if answer is None:
            return self.send_error(404)
        try:
            answer.answer(self)
        except OSError:
            self.close_connection = True

    def log_message(self, *_):
        pass


def end_with_standard_input(server):
    while os.read(0, 256):
        pass
    server.shutdown()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for text in sys.argv[1:]:
        rule = RULE.fullmatch(text)
        if not rule:
            sys.exit(f"paced_server.py: “{text}” is neither NAME=SIZE@RATE[+HEAD] nor NAME=STATUS:SECONDS")
        Request.answers[rule["name"]] = Refusal(rule) if rule["status"] else File(rule)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Request)
    print(server.server_port, flush=True)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=end_with_standard_input, args=[server], daemon=True).start()
    server.serve_forever()


main()
