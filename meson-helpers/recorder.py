#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Types lines into a shell with a terminal of its own, and records what comes (asciinema's file format, version 2): `record`.

The shell, the service, the bus and the home are private, and gone at the end. Used by meson-helpers/recording.
"""
import codecs
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import ExitStack

from terminal_svg import RecordingError

HERE = os.path.dirname(os.path.abspath(__file__))
SERVICE = "org.todoku.Downloader1"
MARK = "\x1b]133;A\x07"  # the shell's prompt: seen by no terminal, and no output of a command
PROMPT = "\x1b[32m$\x1b[39m "
CLEAR = "\x1b[H\x1b[J"
HOME_SHOWN = "/home/you"
KEYS, KEY_PAUSE = 3, 0.12  # keys that come together, and the seconds to the next ones
LONGEST_GAP = 2.5  # seconds without output that are kept
SCENE_PAUSE = 2.5
PATIENCE = 60  # seconds for a command, a condition or a program's start

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


def within(condition, what):
    """Asks every tenth of a second until the condition holds. `what` is a function of the text of the complaint."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RecordingError(f"in vain for {PATIENCE} seconds: {what()}")
        time.sleep(0.1)


def make_home():
    """A new folder whose path is as long as HOME_SHOWN, so that it can be written in its place without a move of a column."""
    for number in range(1000):
        path = f"/tmp/t{number:03}"
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        assert len(path) == len(HOME_SHOWN)
        return path
    raise RecordingError("/tmp/t000 to /tmp/t999 all exist: remove one")


class Session:
    """A private home, bus, server and service. Everything ends with the `with` block."""

    def __init__(self, programs, served, files):
        self.programs, self.served, self.files = os.path.abspath(programs), served, files

    def __enter__(self):
        with ExitStack() as stack:
            self.home = make_home()
            stack.callback(shutil.rmtree, self.home, ignore_errors=True)
            self.work = tempfile.mkdtemp(prefix="todoku-recording.")
            stack.callback(shutil.rmtree, self.work, ignore_errors=True)
            self.stack = stack
            self.begin()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def begin(self):
        os.mkdir(f"{self.work}/run", 0o700)
        os.mkdir(f"{self.home}/Downloads")
        for name, lines in self.files.items():
            with open(f"{self.home}/{name}", "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))
        with open(f"{self.work}/bus.conf", "w", encoding="utf-8") as file:
            file.write(BUS.format(socket=f"{self.work}/bus"))
        server = self.start("server", sys.executable, f"{HERE}/paced_server.py", *self.served, output=subprocess.PIPE)
        port = server.stdout.readline().decode().strip()
        if not port:
            raise RecordingError(f"the paced server did not start: {self.words_of('server')}")
        # Nothing of the caller's environment but its programs: the same session everywhere.
        self.environment = {
            "PATH": f"{self.programs}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": self.home,
            "LC_ALL": "C.UTF-8",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "XDG_RUNTIME_DIR": f"{self.work}/run",
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.work}/bus",
            "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.work}/no-system-bus",
            "CANBERRA_DRIVER": "null",
            "http_proxy": f"http://127.0.0.1:{port}",
            "no_proxy": "127.0.0.1",
            "PS1": MARK,
        }
        self.start("bus", "dbus-daemon", f"--config-file={self.work}/bus.conf", "--nofork", "--nopidfile", "--nosyslog")
        within(lambda: os.path.exists(f"{self.work}/bus"), lambda: f"the bus starts: {self.words_of('bus')}")
        self.start("todokud", f"{self.programs}/todokud", "--idle-exit", "3600")
        within(self.has_service, lambda: f"todokud starts: {self.words_of('todokud')}")
        # Otherwise the first command would tell how to change the language of toasts.
        self.todoku("settings", "language", "en")

    def start(self, name, *command, output=None):
        """Starts a program that ends with the session."""
        with open(f"{self.work}/{name}.log", "wb") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output or log, stderr=log, env=getattr(self, "environment", None), cwd=self.home
            )

        def end():
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

        self.stack.callback(end)
        return child

    def words_of(self, name):
        with open(f"{self.work}/{name}.log", encoding="utf-8", errors="replace") as file:
            return file.read()[-500:].strip() or "it said nothing"

    def has_service(self):
        call = ["dbus-send", "--session", "--print-reply=literal", "--dest=org.freedesktop.DBus", "/"]
        call += ["org.freedesktop.DBus.NameHasOwner", f"string:{SERVICE}"]
        return b"true" in subprocess.run(call, env=self.environment, capture_output=True, check=False).stdout

    def todoku(self, *arguments):
        """The output of a command that nobody sees."""
        done = subprocess.run([f"{self.programs}/todoku", *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RecordingError(f"todoku {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


class Shell:
    """A shell in a terminal, and what has come from it: (seconds, kind, text) each."""

    def __init__(self, session, size):
        columns, rows = size
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            try:
                os.chdir(session.home)
                os.execve("/bin/sh", ["sh", "-i"], session.environment)
            finally:
                os._exit(127)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.pending = ""
        self.events = []
        self.begun, self.hidden = time.monotonic(), 0.0
        self.read_to_prompt()
        self.begun = time.monotonic()

    def end(self):
        os.kill(self.process, signal.SIGHUP)
        os.close(self.terminal)
        os.waitpid(self.process, 0)

    def emit(self, text, kind="o"):
        now = time.monotonic() - self.begun - self.hidden
        if self.events and now - self.events[-1][0] > LONGEST_GAP:
            self.hidden += now - self.events[-1][0] - LONGEST_GAP
            now = self.events[-1][0] + LONGEST_GAP
        if text:
            self.events.append((now, kind, text))

    def read(self, seconds):
        """Records what comes, until the prompt comes or the time is over.

        - Returns: whether the prompt has come.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], left)[0]:
                break
            try:
                self.pending += self.decoder.decode(os.read(self.terminal, 65536))
            except OSError as error:  # EIO: nobody has the terminal open any more
                raise RecordingError(f"the shell has ended: {error}") from error
            before, prompt, after = self.pending.partition(MARK)
            if prompt:
                self.pending = after
                self.emit(before)
                return True
            # A prompt may come in pieces.
            kept = next(length for length in range(len(MARK) - 1, -1, -1) if before.endswith(MARK[:length]))
            self.pending = before[len(before) - kept :]
            self.emit(before[: len(before) - kept])
        return False

    def read_to_prompt(self, command="the shell"):
        if not self.read(PATIENCE):
            raise RecordingError(f"“{command}” has not ended within {PATIENCE} seconds")

    def wait_until_waiting(self, session, name):
        """Waits until a download is waiting. The recording does not have this time."""
        begun = time.monotonic()
        within(lambda: name in session.todoku("list", "--state", "waiting"), lambda: f"{name} waits")
        self.hidden += time.monotonic() - begun

    def run(self, line):
        """Types a line at the prompt, and records until the next prompt.

        - Returns: the output, with the end of the line that was typed.
        """
        if line.begins_scene:
            if self.events:
                self.read(SCENE_PAUSE)
            self.emit(CLEAR)
        self.emit(PROMPT)
        self.emit(line.command, "m")
        self.read(0.5)
        for place in range(0, len(line.command), KEYS):
            os.write(self.terminal, line.command[place : place + KEYS].encode())
            self.read(KEY_PAUSE)
        self.read(0.4)
        first = len(self.events)
        os.write(self.terminal, b"\n")
        self.read_to_prompt(line.command)
        return "".join(text for _, kind, text in self.events[first:] if kind == "o")


def with_home_shown(events, home):
    """The events with HOME_SHOWN in place of the home, also where a path comes in two events: it is as long."""
    texts = iter("".join(text for _, kind, text in events if kind == "o").replace(home, HOME_SHOWN))
    return [(second, kind, "".join(next(texts) for _ in text) if kind == "o" else text) for second, kind, text in events]


def build():
    programs = os.path.abspath(".build/programs")
    subprocess.run(["meson-helpers/set-up", "run"], check=True)
    subprocess.run(["meson-helpers/build", "release", f"{programs}/todokud", f"{programs}/todoku"], check=True)
    return programs


def record(lines, served, files, size, title, programs=None):
    """The text of the recording.

    - Parameters:
      - programs: the folder of todoku and todokud; None: they are built.
      - served: the rules of the paced server.
      - files: the lines of each file in the home.
    """
    programs = programs or build()
    for name in ("todoku", "todokud"):
        if not os.access(os.path.join(programs, name), os.X_OK):
            raise RecordingError(f"there is no program {os.path.join(programs, name)}")
    with Session(programs, served, files) as session:
        shell = Shell(session, size)
        try:
            for line in lines:
                if line.waits_for:
                    shell.wait_until_waiting(session, line.waits_for)
                output = shell.run(line).replace(session.home, HOME_SHOWN)
                if not re.search(line.expects, output):
                    raise RecordingError(f"“{line.command}” said this, and not “{line.expects}”:\n{output}")
            shell.emit(PROMPT)
        finally:
            shell.end()
        events = with_home_shown(shell.events, session.home)
    header = {"version": 2, "width": size[0], "height": size[1], "title": title, "env": {"SHELL": "/bin/sh", "TERM": "xterm-256color"}}
    rows = [header, *([round(second, 2), kind, text] for second, kind, text in events)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
