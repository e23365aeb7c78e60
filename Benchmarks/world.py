"""A bus, a state folder and a service of a benchmark's own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bus import Todoku

top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
folder = tempfile.mkdtemp(prefix="todoku-benchmark.")
children = []


def show(what, measured, aim):
    print(f"{what:<72} {measured:>20}   {aim}", flush=True)


def release_build():
    """The release program, built where no other is named by TODOKUD."""
    program = os.environ.get("TODOKUD")
    if not program:
        program = f"{top}/.build/programs/todokud"
        subprocess.run([f"{top}/meson-helpers/build", "release", program], check=True, stdout=sys.stderr)
    return program


class World:
    """A bus and a state folder of its own.

    `environment`: more variables of the service; {bus} in them is the address of the bus.
    """

    def __init__(self, name, daemon, **environment):
        self.program = daemon
        self.folder = f"{folder}/{name}"
        os.makedirs(f"{self.folder}/home")
        self.environment = dict(
            os.environ, HOME=f"{self.folder}/home", XDG_STATE_HOME=f"{self.folder}/state", XDG_CONFIG_HOME=f"{self.folder}/home/config",
            DBUS_SESSION_BUS_ADDRESS=f"unix:path={self.folder}/bus")
        self.environment.update((key, value.format(bus=f"unix:path={self.folder}/bus")) for key, value in environment.items())
        with open(f"{self.folder}/bus.conf", "w") as file:
            file.write(
                f"<busconfig><type>session</type><listen>unix:path={self.folder}/bus</listen><auth>EXTERNAL</auth>"
                '<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>'
                '<limit name="max_replies_per_connection">200000</limit><limit name="max_connections_per_user">1000</limit></busconfig>')
        self.bus = subprocess.Popen(["dbus-daemon", f"--config-file={self.folder}/bus.conf", "--nofork", "--nopidfile"],
                                    stderr=subprocess.DEVNULL)
        children.append(self.bus)
        while True:
            try:
                self.connection()
                break
            except (FileNotFoundError, ConnectionRefusedError):  # the socket is there before anybody listens
                time.sleep(0.01)
        self.start()

    def connection(self):
        return Todoku(self.environment["DBUS_SESSION_BUS_ADDRESS"])

    def start(self):
        """Starts the service; returns the seconds to its first answer."""
        client = self.connection()
        start = time.perf_counter()
        self.daemon = subprocess.Popen([self.program, "--idle-exit", "3600"], env=self.environment, stderr=subprocess.DEVNULL)
        children.append(self.daemon)
        while True:
            try:
                client.ask("Ping", interface="org.freedesktop.DBus.Peer")
                break
            except RuntimeError:  # not there yet
                time.sleep(0.0005)
        seconds = time.perf_counter() - start
        self.client = client
        return seconds

    def stop(self, number=signal.SIGTERM):
        self.daemon.send_signal(number)
        self.daemon.wait()

    def memory(self, key="VmRSS"):
        with open(f"/proc/{self.daemon.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))

    def processor_time(self):
        with open(f"/proc/{self.daemon.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def finish():
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()
    shutil.rmtree(folder, ignore_errors=True)
