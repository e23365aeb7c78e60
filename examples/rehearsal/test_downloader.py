#!/usr/bin/python3
# SPDX-License-Identifier: CC0-1.0
"""Tests of downloader.py with downloads that go wrong: python3 test_downloader.py

It needs todoku and todokud in PATH, dbus-daemon and PyGObject, and neither a desktop nor a network. Your own downloads stay as they are.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

APP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "downloader.py")
# The shell expands the variables that the rehearsal gives to the command.
SCRIPT = '"$0" "$1" "$TODOKU_REHEARSAL_URL/file" "$TODOKU_REHEARSAL_SHA256"'


class Rehearsal:
    """Runs of the app one after the other: their exit status and output, and the summary of `todoku rehearse`."""

    def __init__(self, scenario, runs, between):
        with tempfile.TemporaryDirectory() as folder:
            summary = os.path.join(folder, "summary.json")
            command = ["todoku", "rehearse", "--strict", "--json", "--summary", summary, scenario]
            script = f" {between} ".join([SCRIPT] * runs)
            run = subprocess.run(
                [*command, "--", "sh", "-c", script, sys.executable, APP], stdout=subprocess.PIPE, timeout=240, universal_newlines=True
            )
            self.status, self.output = run.returncode, run.stdout
            with open(summary, encoding="utf-8") as file:
                self.summary = json.load(file)


class DownloaderTest(unittest.TestCase):
    def expect(self, scenario, status, text, runs=1, between="&&"):
        rehearsal = Rehearsal(scenario, runs, between)
        self.assertEqual(rehearsal.status, status, rehearsal.summary)
        self.assertIn(text, rehearsal.output)
        return rehearsal

    def test_the_file_comes_although_the_way_is_bad(self):
        for scenario in ("none", "busy", "truncated", "stall", "crash", "unreachable:seconds=1"):
            with self.subTest(scenario):
                self.expect(scenario, 0, "saved ")

    def test_an_expired_link_is_renewed(self):
        rehearsal = self.expect("expired", 0, "waiting: needs-url\n")
        methods = [call["method"] for call in rehearsal.summary["calls"]]
        self.assertIn("ReplaceUrl", methods)

    def test_a_renewed_download_is_found_again_after_a_restart_of_the_app(self):
        rehearsal = self.expect("expired", 0, "waiting: needs-url\n", runs=2)
        self.assertEqual(rehearsal.output.count("saved "), 2)
        self.assertEqual(len(rehearsal.summary["downloads"]), 1)

    def test_another_file_is_not_taken_for_the_file(self):
        for scenario in ("changed", "damaged", "portal"):
            with self.subTest(scenario):
                self.expect(scenario, 1, "this is another file")

    def test_a_missing_file_is_told(self):
        self.expect("missing", 1, "the server does not have this file any more\n")

    def test_a_missing_file_is_asked_for_again_by_the_next_run(self):
        rehearsal = self.expect("busy:times=1,status=404", 0, "the server does not have this file any more\nsaved ", runs=2, between=";")
        self.assertEqual(len(rehearsal.summary["downloads"]), 1)

    def test_the_service_keeps_one_download_over_a_crash(self):
        rehearsal = self.expect("crash:at=1M,times=2", 0, "saved ")
        self.assertGreaterEqual(rehearsal.summary["service-starts"], 3)
        [download] = rehearsal.summary["downloads"]
        self.assertEqual([end["outcome"] for end in download["ends"]], ["finished"])


if __name__ == "__main__":
    unittest.main()
