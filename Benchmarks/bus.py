"""A D-Bus client of a few lines for the benchmarks: calls are written ahead, and their answers read as they come."""

import os
import socket
import struct
import threading
import time


def align(data, size):
    data.extend(b"\0" * (-len(data) % size))


def write_string(data, text):
    text = text.encode()
    align(data, 4)
    data += struct.pack("<I", len(text)) + text + b"\0"


def write_signature(data, text):
    data += bytes([len(text)]) + text.encode() + b"\0"


def write_array(data, size, items, write):
    """`size`: the alignment of its elements."""
    align(data, 4)
    place = len(data)
    data += b"\0\0\0\0"
    align(data, size)
    start = len(data)
    for item in items:
        write(data, item)
    struct.pack_into("<I", data, place, len(data) - start)


def write_options(data, options):
    """`a{sv}` of a dict whose values are str, bool, a list of str, ("o", path) or (type, number)."""

    def entry(data, pair):
        align(data, 8)
        write_string(data, pair[0])
        value = pair[1]
        if isinstance(value, bool):
            write_signature(data, "b")
            align(data, 4)
            data += struct.pack("<I", value)
        elif isinstance(value, str):
            write_signature(data, "s")
            write_string(data, value)
        elif isinstance(value, list):
            write_signature(data, "as")
            write_array(data, 4, value, write_string)
        else:
            write_signature(data, value[0])
            if value[0] == "o":
                write_string(data, value[1])
                return
            code = {"u": "<I", "i": "<i", "t": "<Q"}[value[0]]
            align(data, struct.calcsize(code))
            data += struct.pack(code, value[1])

    write_array(data, 8, options.items(), entry)


class Connection:
    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(address.split("path=")[1].split(",")[0])
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        assert self.socket.recv(1000).startswith(b"OK")
        self.socket.sendall(b"BEGIN\r\n")
        self.serial = 0
        self.buffer = b""
        self.name = self.string(self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello"))

    def message(self, destination, path, interface, member, signature="", body=b""):
        """A call as bytes; its serial is `self.serial`."""
        return self.make(1, [(1, "o", path), (2, "s", interface), (3, "s", member), (6, "s", destination)], signature, body)

    def make(self, kind, fields, signature="", body=b""):
        """A message as bytes; `fields`: (code, signature, value) of each header field."""
        self.serial += 1
        data = bytearray(struct.pack("<BBBBII", ord("l"), kind, 0, 1, len(body), self.serial))

        def field(data, item):
            align(data, 8)
            code, kind, value = item
            data.append(code)
            write_signature(data, kind)
            if kind == "g":
                write_signature(data, value)
            elif kind == "u":
                align(data, 4)
                data += struct.pack("<I", value)
            else:
                write_string(data, value)

        write_array(data, 8, fields + ([(8, "g", signature)] if signature else []), field)
        align(data, 8)
        return bytes(data + body)

    def read(self):
        """The next message: (type, reply serial, body)."""
        kind, fields, body = self.read_whole()
        return kind, fields.get(5, 0), body

    def read_whole(self):
        """The next message: (type, header fields by code, body); its serial is in the place of field 0."""
        while True:
            if len(self.buffer) >= 16:
                kind = self.buffer[1]
                length, serial, fields = struct.unpack_from("<III", self.buffer, 4)
                start = 16 + fields + (-fields % 8)
                if len(self.buffer) >= start + length:
                    whole, self.buffer = self.buffer[: start + length], self.buffer[start + length :]
                    return kind, {0: serial, **self.fields(whole, fields)}, whole[start:]
            more = self.socket.recv(1 << 20)
            if not more:
                raise EOFError("the bus hung up")
            self.buffer += more

    @staticmethod
    def fields(message, length):
        found = {}
        place = 16
        while place < 16 + length:
            place += -place % 8
            code, kind = message[place], chr(message[place + 2])
            place += 4
            if kind == "g":
                place += message[place] + 2
                continue
            place += -place % 4
            (number,) = struct.unpack_from("<I", message, place)
            place += 4
            if kind == "u":
                found[code] = number
            else:
                found[code] = message[place : place + number].decode()
                place += number + 1
        return found

    def wait(self, serial):
        while True:
            kind, reply, body = self.read()
            if reply == serial:
                if kind == 3:
                    raise RuntimeError(self.string(body))
                return body

    def call(self, *words):
        return self.call_made(self.message(*words))

    def call_made(self, message):
        """Sends the call that was made last, and waits for its answer."""
        serial = self.serial
        self.socket.sendall(message)
        return self.wait(serial)

    def pipeline(self, messages, count):
        """Sends all while it reads their `count` answers; the messages are the last ones made."""
        sender = threading.Thread(target=lambda: [self.socket.sendall(m) for m in messages])
        sender.start()
        while count:
            kind, reply, body = self.read()
            if kind == 3:
                raise RuntimeError(self.string(body))
            count -= kind == 2
        sender.join()

    @staticmethod
    def string(body):
        (length,) = struct.unpack_from("<I", body)
        return body[4 : 4 + length].decode()


class StandIn(Connection):
    """Owns the names of NetworkManager and logind, as far as Todoku uses them. Each call gets the properties, or an error."""

    NETWORK, NETWORK_PATH = "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager"
    LOGIN = "org.freedesktop.login1"

    def __init__(self, address):
        super().__init__(address)
        self.state = {"State": ("u", 70), "Connectivity": ("u", 4), "Metered": ("u", 2)}
        for name in [self.NETWORK, self.LOGIN]:
            body = bytearray()
            write_string(body, name)
            align(body, 4)
            body += struct.pack("<I", 4)
            self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", "su", bytes(body))
        self.lock = threading.Lock()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                kind, fields, _ = self.read_whole()
            except (EOFError, OSError):
                return
            if kind != 1:
                continue
            to = [(5, "u", fields[0]), (6, "s", fields[7])]
            with self.lock:
                if fields[3] == "GetAll":
                    body = bytearray()
                    write_options(body, self.state)
                    answer = self.make(2, to, "a{sv}", bytes(body))
                else:
                    answer = self.make(3, to + [(4, "s", "org.freedesktop.DBus.Error.AccessDenied")])
                self.socket.sendall(answer)

    def signal(self, path, interface, member, signature, body):
        with self.lock:
            self.socket.sendall(self.make(4, [(1, "o", path), (2, "s", interface), (3, "s", member)], signature, bytes(body)))

    def network(self, connectivity):
        """`connectivity`: as in NetworkManager's D-Bus API; 2 a captive portal, 4 full."""
        self.state["Connectivity"] = ("u", connectivity)
        body = bytearray()
        write_string(body, self.NETWORK)
        write_options(body, self.state)
        write_array(body, 4, [], write_string)
        self.signal(self.NETWORK_PATH, "org.freedesktop.DBus.Properties", "PropertiesChanged", "sa{sv}as", body)

    def sleep(self, begins):
        self.signal("/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForSleep", "b", struct.pack("<I", begins))


SERVICE, MANAGER = "org.todoku.Downloader1", "/org/todoku/Downloader1"


class Todoku(Connection):
    def ask(self, member, signature="", body=b"", interface=SERVICE, path=MANAGER):
        return self.call(SERVICE, path, interface, member, signature, bytes(body))

    def download_call(self, url, options):
        body = bytearray()
        write_string(body, url)
        write_options(body, options)
        return self.message(SERVICE, MANAGER, SERVICE, "Download", "sa{sv}", bytes(body))

    def batch_call(self, items, options):
        body = bytearray()

        def item(data, pair):
            align(data, 8)
            write_string(data, pair[0])
            write_options(data, pair[1])

        write_array(body, 8, items, item)
        write_options(body, options)
        return self.message(SERVICE, MANAGER, SERVICE, "DownloadBatch", "a(sa{sv})a{sv}", bytes(body))

    def has_batches(self):
        return b'"DownloadBatch"' in self.ask("Introspect", interface="org.freedesktop.DBus.Introspectable")

    def list_app(self, app, member="List"):
        body = bytearray()
        write_options(body, {"app": app})
        if member == "List":
            return self.ask("List", "a{sv}", body)
        write_array(body, 4, [], write_string)
        return self.ask("Describe", "a{sv}as", body)

    def set(self, name, kind, value):
        body = bytearray()
        write_string(body, SERVICE)
        write_string(body, name)
        write_signature(body, kind)
        align(body, 8 if kind == "t" else 4)
        body += struct.pack("<Q" if kind == "t" else "<I", value)
        self.ask("Set", "ssv", body, "org.freedesktop.DBus.Properties")

    def get_all(self, path=MANAGER, interface=SERVICE):
        body = bytearray()
        write_string(body, interface)
        return self.ask("GetAll", "s", body, "org.freedesktop.DBus.Properties", path)

    def remaining(self):
        body = bytearray()
        write_string(body, SERVICE)
        write_string(body, "Remaining")
        return struct.unpack("<I", self.ask("Get", "ss", body, "org.freedesktop.DBus.Properties")[-4:])[0]

    def match(self, rule):
        body = bytearray()
        write_string(body, rule)
        self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", "s", bytes(body))

    def pid(self):
        body = bytearray()
        write_string(body, SERVICE)
        answer = self.call(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetConnectionUnixProcessID", "s", bytes(body))
        return struct.unpack("<I", answer)[0]


def median_time(action, count):
    """Of `count` runs, in microseconds."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[len(times) // 2]
