# SPDX-License-Identifier: CC0-1.0
"""Todoku for Python programs, in one file: copy it beside your program. It needs PyGObject (the package python3-gi) and nothing else.

    service = todoku.Todoku("org.example.App")
    download = service.download("https://example.org/a.iso", token="a_iso", if_exists="replace")
    for status in download.watch():
        print(status.state, status.received, status.total)
    print(download.wait())                         # the path of the file; a failure is a TodokuError
    download = service.at("a_iso")                 # the same download, after a restart of the program

An option is a keyword argument with an underscore for each hyphen. Its value is a plain Python value, in the unit that docs/dbus.md tells.
None is an option that is not given. A GLib.Variant is passed unchanged, also as an option that is newer than this file.

Each call blocks, without a main loop and without running other callbacks of the program; Ctrl-C interrupts it. With the argument `then` it
returns None at once, and calls `then` later in the main loop of the thread. `then` gets a function, which returns the value or raises:

    service.download(url, then=lambda answer: print(answer().path))

The class Watch is for a main loop what Download.watch is for a script.
"""
from __future__ import annotations

import collections
import contextlib
import functools
import os
import time
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Tuple, TypeVar, Union

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib

SERVICE = "org.todoku.Downloader1"
MANAGER = "/org/todoku/Downloader1"
DOWNLOAD = "org.todoku.Download1"
ENDED = ("finished", "failed", "cancelled")
Answer = Callable[[], Any]
Then = Callable[[Answer], None]

T = TypeVar("T")
# Beginnings of names: the bus knows no such service, or cannot start it.
_MISSING = ("org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.Spawn.", "org.freedesktop.systemd1.")
_NO_REPLY, _UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.UnknownObject"
_NO_OBJECT = "org.todoku.Error.NoSuchObject"
_FOREVER = GLib.MAXINT  # GDBus's word for no time limit; without it, GDBus gives up after 25 s
_MOST_LOSSES, _STEADY = 6, 30.0  # losses in a row; seconds after which a loss begins a new row
_PAGE, _MOST_READINGS = 1000, 16  # the most elements of one answer; how often a list is read from the start
_KEYS = {
    "s": "activate app body checksum desktop-id directory expect-type extract filename icon if-exists notify password piece-hashes "
    "post-type proxy referrer sound tag title token user-agent username",
    "b": "allow-downgrade allow-metered allow-private find-mirrors only-if-changed private renewable show-progress start",
    "t": "deadline max-size not-before size speed-limit",
    "u": "connections notify-delay request-interval retries stall-timeout",
    "i": "priority",
    "as": "cookies mirrors",
    "ay": "post-data",
    "a{ss}": "headers",
    "a(ss)": "header-list",
    "a{sv}": "metadata",
}
OPTIONS = {key: kind for kind, keys in _KEYS.items() for key in keys.split()}  # the D-Bus type of each; extract is b or s
_RENEWED = {key: OPTIONS[key] for key in ("headers", "header-list", "cookies", "referrer", "username", "password")}
_BATCH_FILTER = {"app": "s", "ended": "b"}
_FILTER = {"app": "s", "tag": "s", "state": "s", "states": "as", "batch": "o", "metadata": "a{sv}"}
_TAKES: Dict[str, Tuple[Any, str]] = {
    "s": (str, "text"), "o": (str, "an object path"), "b": (bool, "True or False"), "as": ((list, tuple), "a list of texts"),
    "i": (int, "a whole number"), "u": (int, "a whole number from 0 to 4294967295"), "t": (int, "a whole number from 0"),
    "a{ss}": (dict, "a dict of texts"), "a(ss)": ((list, tuple), "a list of pairs of texts"), "a{sv}": (dict, "a dict"),
    "ay": (bytes, "bytes"),
}  # fmt: skip


class TodokuError(Exception):
    """A refused call, or the failure that a download ended in. `name` is HttpStatus for org.todoku.Error.HttpStatus (`bus_name`)."""

    def __init__(self, bus_name: str, message: str, details: Optional[Dict[str, Any]] = None):
        super().__init__(message)
        self.bus_name, self.name, self.message = bus_name, bus_name.rsplit(".", 1)[-1], message
        self.details: Dict[str, Any] = details or {}

    @property
    def retryable(self) -> Optional[bool]:
        """Whether Download.retry may help; None if the service does not know, or no download failed."""
        return self.details.get("retryable")

    @property
    def is_unavailable(self) -> bool:
        """Whether the service is not installed, or cannot be started."""
        return self.bus_name.startswith(_MISSING)

    def __str__(self) -> str:
        return f"{self.name}: {'Todoku is not installed, or cannot be started: ' if self.is_unavailable else ''}{self.message}"

    @classmethod
    def of(cls, error: GLib.Error) -> TodokuError:
        """GDBus puts the name of a D-Bus error before its message. Its own errors have no such name, but the name of their domain."""
        name = Gio.DBusError.get_remote_error(error)
        return cls(name, error.message.split(f"{name}: ", 1)[-1]) if name else cls(error.domain, error.message)


class Fetched(NamedTuple):
    is_new: bool
    path: str


class Status(Dict[str, Any]):
    """The properties of a download, by their names in org.todoku.Download1, with attributes for the usual ones."""

    state: str = property(lambda self: self["State"])  # type: ignore[assignment]
    received: int = property(lambda self: self["Received"])  # type: ignore[assignment]
    wait_reason: str = property(lambda self: self["WaitReason"])  # type: ignore[assignment]
    path: str = property(lambda self: self["Path"])  # type: ignore[assignment]
    has_ended: bool = property(lambda self: self["State"] in ENDED)  # type: ignore[assignment]

    @property
    def total(self) -> Optional[int]:
        """None while the server has not told the total."""
        return self["Total"] if self["Total"] >= 0 else None

    @property
    def error(self) -> Optional[TodokuError]:
        """What the download failed with. While it waits, the error of the last attempt."""
        return TodokuError(*self["Error"]) if self["Error"][0] else None


# Values


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.items()))
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _texts(entry)


def _pack(kind: str, value: Any) -> GLib.Variant:
    """GLib.Variant alone would cut a text at a NUL."""
    if any("\0" in text for text in _texts(value)):
        raise ValueError("D-Bus carries no NUL in a text")
    return GLib.Variant(kind, value)


def _metadata(value: Any) -> GLib.Variant:
    for kind, python in (("b", bool), ("s", str), ("x", int), ("d", float), ("as", list)):
        if isinstance(value, python):
            return _pack(kind, value)
    if not isinstance(value, GLib.Variant):
        raise TypeError(f"metadata takes text, numbers, True, False and lists of texts, not {type(value).__name__}")
    return value


def _variant(kinds: Mapping[str, str], key: str, value: Any) -> GLib.Variant:
    """GLib.Variant alone would turn the text "no" into true, 1.5 into 1, and a text into a list of letters."""
    if isinstance(value, GLib.Variant):
        return value
    if key not in kinds:
        raise TypeError(f"there is no option {key}; the options are {', '.join(sorted(kinds))}")
    kind = "b" if key == "extract" and isinstance(value, bool) else kinds[key]
    value = os.fspath(value) if kind == "s" and isinstance(value, os.PathLike) else value
    python, takes = _TAKES[kind]
    if not isinstance(value, python) or isinstance(value, bool) != (kind == "b"):
        raise TypeError(f"option {key} takes {takes}, not {type(value).__name__}")
    try:
        if kind == "a{sv}":
            value = {name: _metadata(entry) for name, entry in value.items()}
        return _pack(kind, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"option {key} takes {takes}: {error}") from None


def _dictionary(kinds: Mapping[str, str], values: Mapping[str, Any]) -> Dict[str, GLib.Variant]:
    given = {key.replace("_", "-"): value for key, value in values.items() if value is not None}
    return {key: _variant(kinds, key, value) for key, value in given.items()}


def _element(text: str) -> str:
    """The text as an element of an object path. Every byte but letters, and digits that are not first, is escaped."""
    letters = [chr(byte) for byte in text.encode()]
    plain = [letter.isascii() and (letter.isalpha() or index > 0 and letter.isdigit()) for index, letter in enumerate(letters)]
    return "".join(letter if fits else f"_{ord(letter):02x}" for letter, fits in zip(letters, plain)) or "_"


# Calls


class _Call(NamedTuple):
    path: str
    interface: str
    method: str
    arguments: Optional[GLib.Variant] = None
    limit: int = 60_000  # ms; the bus may have to start the service, which may have to read a long list


_Plan = Generator[Union[_Call, float], Any, T]  # yields calls, and pauses in seconds; returns the value


def _give(value: T) -> T:
    return value


def _fail(error: TodokuError) -> NoReturn:
    raise error


class _Losses:
    """Counts how often in a row the service went away before it answered."""

    def __init__(self, most: int = _MOST_LOSSES) -> None:
        self.most, self.count, self.any, self.begun = most, 0, False, time.monotonic()

    def pause(self, error: TodokuError) -> float:
        """The seconds until the call is repeated. Raises `error` if it is another error, or if the service keeps going away."""
        if error.bus_name != _NO_REPLY:
            raise error
        self.count, self.any = 1 if time.monotonic() - self.begun > _STEADY else self.count + 1, True
        if self.count > self.most:
            raise error
        return 0.0 if self.count == 1 else 2.0 ** (self.count - 2)


def _answered(call: _Call, losses: Optional[_Losses] = None) -> _Plan[Any]:
    """Repeats the call if the service exits or crashes before it answers; the repeated call starts the service."""
    losses = losses or _Losses()
    while True:
        losses.begun = time.monotonic()
        try:
            return (yield call)
        except TodokuError as error:
            pause = losses.pause(error)
        yield pause


def _read_again(pages: Callable[[List[str]], _Plan[bool]]) -> _Plan[List[str]]:
    """Reads a list of several pages, each path once. If its last element ends or leaves before the next page, reads from the start."""
    cut: List[str] = []
    for reading in range(_MOST_READINGS):
        read: List[str] = []
        is_whole = False
        try:
            is_whole = yield from pages(read)
        except TodokuError as error:
            # Without a page, the error is about the caller's own filter.
            if error.bus_name != _NO_OBJECT or not read or reading == _MOST_READINGS - 1:
                raise
        # A download that ends between two pages is in both: its later place counts.
        cut = list(dict.fromkeys(reversed(read if is_whole else cut + read)))[::-1]
        if is_whole:
            break
    return cut


def _start(bus: Gio.DBusConnection, plan: _Plan[Any], then: Then) -> None:
    """Carries out the plan in the main context of the thread."""

    def go(resume: Callable[[Any], Union[_Call, float]], value: Any = None) -> None:
        try:
            step = resume(value)
        except StopIteration as end:
            answer = functools.partial(_give, end.value)
        except TodokuError as error:
            answer = functools.partial(_fail, error)
        else:
            if isinstance(step, _Call):
                flags = Gio.DBusCallFlags.NONE  # the bus may start the service
                return bus.call(SERVICE, *step[:4], None, flags, step.limit, None, answered)
            timer = GLib.timeout_source_new(int(step * 1000))
            timer.set_callback(lambda *_: go(plan.send))  # returns None, so the timer fires once
            timer.attach(GLib.MainContext.ref_thread_default())
            return None
        return then(answer)

    def answered(bus: Gio.DBusConnection, result: Gio.AsyncResult) -> None:
        try:
            value = bus.call_finish(result).unpack()
        except GLib.Error as error:
            return go(plan.throw, TodokuError.of(error))
        return go(plan.send, value)

    go(plan.send)


@contextlib.contextmanager
def _inside(context: GLib.MainContext) -> Iterator[None]:
    context.push_thread_default()
    try:
        yield
    finally:
        context.pop_thread_default()


def _next(context: GLib.MainContext, answers: collections.deque[Answer]) -> Any:
    with _inside(context):
        while not answers:
            context.iteration(True)  # unlike Gio's call_sync, this ends with Ctrl-C
    return answers.popleft()()


def _method(plan: Callable[..., _Plan[T]]) -> Callable[..., T]:
    """Makes a method of a plan: it blocks or, with the argument `then`, calls that later."""

    @functools.wraps(plan)
    def run(self: Any, *arguments: Any, then: Optional[Then] = None, **options: Any) -> Any:
        if then:
            return _start(self.bus, plan(self, *arguments, **options), then)
        answers: collections.deque[Answer] = collections.deque()
        context = GLib.MainContext.new()
        with _inside(context):
            _start(self.bus, plan(self, *arguments, **options), answers.append)
        return _next(context, answers)

    return run


# Objects


class Todoku:
    """The service. `app` is the application id of the program: the default of the option `app`, and of the same key of a filter."""

    def __init__(self, app: Optional[str] = None, bus: Optional[Gio.DBusConnection] = None):
        self.app = app
        try:
            self.bus = bus or Gio.bus_get_sync(Gio.BusType.SESSION)
        except GLib.Error as error:
            raise TodokuError.of(error) from None

    def _options(self, options: Mapping[str, Any], kinds: Mapping[str, str] = OPTIONS) -> Dict[str, GLib.Variant]:
        return _dictionary(kinds, {"app": self.app, **options})

    def at(self, token: str) -> Download:
        """The download with this token, which this app has queued or will queue. Makes no call."""
        if not self.app:
            raise ValueError("a download with a token has an app: Todoku(app)")
        return Download(self.bus, f"{MANAGER}/download/by_token/{_element(self.app)}/{_element(token)}")

    @_method
    def download(self, url: str, **options: Any) -> _Plan[Download]:
        """Queues a download. After the answer, it is on disk. With a `token`, repeating the call queues nothing twice."""
        arguments = _pack("(sa{sv})", (url, self._options(options)))
        losses = _Losses() if options.get("token") else _Losses(most=0)
        (path,) = yield from _answered(_Call(MANAGER, SERVICE, "Download", arguments), losses)
        return Download(self.bus, path)

    @_method
    def batch(self, items: Iterable[Union[str, Tuple[str, Dict[str, Any]]]], **options: Any) -> _Plan[Batch]:
        """Queues all items, or none. An item is a URL, or a URL with options of its own, which win over the options of the call."""
        pairs = [(item, {}) if isinstance(item, str) else (item[0], _dictionary(OPTIONS, item[1])) for item in items]
        arguments = _pack("(a(sa{sv})a{sv})", (pairs, self._options(options)))
        losses = _Losses() if all("token" in own for _, own in pairs) else _Losses(most=0)
        path, downloads = yield from _answered(_Call(MANAGER, SERVICE, "DownloadBatch", arguments), losses)
        return Batch(self.bus, path, [Download(self.bus, download) for download in downloads])

    @_method
    def fetch(self, url: str, **options: Any) -> _Plan[Fetched]:
        """Downloads the file if it differs from the last one, and waits. If an answer was lost, the file counts as new."""
        arguments = _pack("(sa{sv})", (url, self._options(options)))
        losses = _Losses()
        outcome, path = yield from _answered(_Call(MANAGER, SERVICE, "Fetch", arguments, _FOREVER), losses)
        return Fetched(losses.any or outcome != "no-data", path)

    @_method
    def find(self, **filter: Any) -> _Plan[List[Download]]:
        """The downloads that match all of `app`, `tag`, `state`, `states`, `batch` (an object path) and `metadata`, in queue order."""
        paths = yield from _read_again(functools.partial(self._downloads, self._options(filter, _FILTER)))
        return [Download(self.bus, path) for path in paths]

    @_method
    def batches(self, **filter: Any) -> _Plan[List[Batch]]:
        """The batches whose members all have `app`, the oldest first. With `ended`, only those that have ended (True) or not (False)."""
        paths = yield from _read_again(functools.partial(self._batches, self._options(filter, _BATCH_FILTER)))
        return [Batch(self.bus, path) for path in paths]

    @_method
    def wait_all(self, **filter: Any) -> _Plan[Tuple[int, int, int]]:
        """Waits for the end of all downloads that match now; `filter` as for find. Returns how many finished, failed and were cancelled.
        If the service goes away meanwhile, the downloads that match then are awaited."""
        arguments = GLib.Variant("(a{sv})", (self._options(filter, _FILTER),))
        return (yield from _answered(_Call(MANAGER, SERVICE, "WaitAll", arguments, _FOREVER)))

    def _downloads(self, wanted: Dict[str, GLib.Variant], read: List[str]) -> _Plan[bool]:
        """Appends the paths of all pages. False: the last download of a page has ended before the next page, which may have skipped
        others: those between the former place of the ended download and its new one, behind all others."""
        before = None
        while True:
            asked = time.time_ns() // 1000
            arguments = GLib.Variant("(a{sv}as)", (wanted, ["State", "EndedAt"]))
            (page,) = yield from _answered(_Call(MANAGER, SERVICE, "Describe", arguments))
            read += [path for path, _ in page]
            if before and (yield from Download(self.bus, before)._is_over()):
                return False
            if len(page) < _PAGE:
                return True
            last, values = page[-1]
            has_ended = values["State"] in ENDED
            if has_ended and values["EndedAt"] >= asked:  # the page is in the order of its call, but the states may be newer
                return False
            before = None if has_ended else last
            wanted = {**wanted, "after": GLib.Variant("o", last)}

    def _batches(self, wanted: Dict[str, GLib.Variant], read: List[str]) -> _Plan[bool]:
        """Appends the paths of all pages."""
        while True:
            (page,) = yield from _answered(_Call(MANAGER, SERVICE, "ListBatches", GLib.Variant("(a{sv})", (wanted,))))
            read += page
            if len(page) < _PAGE:
                return True
            wanted = {**wanted, "after": GLib.Variant("o", page[-1])}


class Download:
    """One download. Its object path stays the same when the program or the service restarts."""

    def __init__(self, bus: Gio.DBusConnection, path: str):
        self.bus, self.path = bus, path

    def _read(self, losses: Optional[_Losses] = None) -> _Plan[Status]:
        arguments = GLib.Variant("(s)", (DOWNLOAD,))
        return Status((yield from _answered(_Call(self.path, "org.freedesktop.DBus.Properties", "GetAll", arguments), losses))[0])

    def _is_over(self) -> _Plan[bool]:
        """Whether the download has ended, or is off the list."""
        try:
            return (yield from self._read()).has_ended
        except TodokuError as error:
            if error.bus_name != _UNKNOWN_OBJECT:
                raise
            return True

    @_method
    def wait(self) -> _Plan[str]:
        """Waits for the end, also across exits and crashes of the service. Returns the path, or raises the failure with its details."""
        try:
            return (yield from _answered(_Call(self.path, DOWNLOAD, "Wait", GLib.Variant("(a{sv})", ({},)), _FOREVER)))[0]
        except TodokuError as error:
            if error.bus_name.startswith("org.todoku."):
                with contextlib.suppress(TodokuError):  # a removed download has no details
                    error.details = (yield from self._read())["Error"][2]
            raise

    @_method
    def status(self) -> _Plan[Optional[Status]]:
        """The properties now; None if there is no such download."""
        try:
            return (yield from self._read())
        except TodokuError as error:
            if error.bus_name != _UNKNOWN_OBJECT:
                raise
            return None

    def watch(self) -> Iterator[Status]:
        """The status now, and after each change up to the end. In a program with a main loop, use Watch."""
        context = GLib.MainContext.new()
        answers: collections.deque[Answer] = collections.deque()
        with _inside(context):
            watch = Watch(self, answers.append)
        try:
            status = None
            while not status or not status.has_ended:
                status = _next(context, answers)
                yield status
        finally:
            watch.stop()
            # GDBus frees the callbacks of a subscription in the context of the subscription. Nobody else iterates this context.
            with _inside(context):
                while context.iteration(False):
                    pass

    @_method
    def _do(self, method: str, arguments: Optional[GLib.Variant] = None, most_losses: int = _MOST_LOSSES) -> _Plan[Any]:
        answer = yield from _answered(_Call(self.path, DOWNLOAD, method, arguments), _Losses(most_losses))
        return answer[0] if answer else None

    pause = functools.partialmethod(_do, "Pause")
    resume = functools.partialmethod(_do, "Resume")
    acknowledge = functools.partialmethod(_do, "Acknowledge")
    metadata = functools.partialmethod(_do, "GetMetadata")
    # A repeated call of these may be refused, although the first call did its work.
    cancel = functools.partialmethod(_do, "Cancel", most_losses=0)
    retry = functools.partialmethod(_do, "Retry", most_losses=0)

    def set_metadata(self, metadata: Mapping[str, Any], then: Optional[Then] = None) -> None:
        """Replaces the caller's own data, also of an ended download."""
        values = {key: _metadata(value) for key, value in metadata.items()}
        return self._do("SetMetadata", _pack("(a{sv})", (values,)), then=then)

    @_method
    def replace_url(self, url: str, **options: Any) -> _Plan[None]:
        """Continues with a fresh link to the same bytes. Options are headers, header_list, cookies, referrer, username and password."""
        arguments = _pack("(sa{sv})", (url, _dictionary(_RENEWED, options)))
        yield from _answered(_Call(self.path, DOWNLOAD, "ReplaceUrl", arguments))

    def remove(self, delete_file: bool = False, then: Optional[Then] = None) -> None:
        """Removes the download from the list. An unfinished download is cancelled first."""
        return self._do("Remove", GLib.Variant("(b)", (delete_file,)), most_losses=0, then=then)


class Batch:
    """Downloads that were queued together. `downloads` are in the order of the items; None if Todoku.batches has found the batch. Then
    `find(batch=batch.path)` finds those that are still on the list."""

    def __init__(self, bus: Gio.DBusConnection, path: str, downloads: Optional[List[Download]] = None):
        self.bus, self.path, self.downloads = bus, path, downloads

    @_method
    def wait(self) -> _Plan[Tuple[int, int, int]]:
        """Waits for the end of all members. Returns how many finished, failed and were cancelled."""
        arguments = GLib.Variant("(a{sv})", ({},))
        return (yield from _answered(_Call(self.path, "org.todoku.Batch1", "Wait", arguments, _FOREVER)))

    @_method
    def retry(self) -> _Plan[None]:
        """Starts all failed members again, from the bytes on disk."""
        yield from _answered(_Call(self.path, "org.todoku.Batch1", "Retry", None), _Losses(0))


class Watch:
    """Calls `then` with the status of a download now and after each change, until `stop`. An answer that raises is the last."""

    def __init__(self, download: Download, then: Then):
        self._download, self._then, self._bus = download, then, download.bus
        self._status: Optional[Status] = None
        self._losses, self._is_reading = _Losses(), False
        # Subscribe first, then read: a change between the two is reported twice rather than never.
        flags, driver = Gio.DBusSignalFlags.NONE, "org.freedesktop.DBus"
        self._subscriptions = [
            self._bus.signal_subscribe(SERVICE, None, None, download.path, None, flags, self._changed),
            self._bus.signal_subscribe(SERVICE, SERVICE, "DownloadRemoved", MANAGER, None, flags, self._removed),
            self._bus.signal_subscribe(driver, driver, "NameOwnerChanged", "/org/freedesktop/DBus", SERVICE, flags, self._owned),
        ]
        self._read()

    def stop(self) -> None:
        while self._subscriptions:
            self._bus.signal_unsubscribe(self._subscriptions.pop())

    def _read(self, loss: Optional[TodokuError] = None) -> None:
        def plan() -> _Plan[Status]:
            if loss:
                yield self._losses.pause(loss)
            return (yield from self._download._read(self._losses))

        if not self._is_reading:
            self._is_reading = True
            _start(self._bus, plan(), self._tell)

    def _tell(self, answer: Answer) -> None:
        self._is_reading = False
        if not self._subscriptions:
            return
        try:
            self._status = Status(answer())
        except TodokuError:
            self.stop()
        self._then(answer)

    def _changed(self, *signal: Any) -> None:
        if self._status is None or self._is_reading:
            return  # the status that is being read includes this change
        member, arguments = signal[4], signal[5].unpack()
        if member == "PropertiesChanged" and arguments[0] == DOWNLOAD:
            change = arguments[1]
        elif member in ("Progress", "ResumedAt"):
            received, total = arguments[-2:]
            change = {"Received": received, "Total": total, "Fraction": received / total if total > 0 else -1.0}
        else:
            return
        self._tell(functools.partial(_give, Status({**self._status, **change})))

    def _removed(self, *signal: Any) -> None:
        if signal[5].unpack()[0] == self._download.path:
            self._tell(functools.partial(_fail, TodokuError(_UNKNOWN_OBJECT, "the download was removed from the list")))

    def _owned(self, *signal: Any) -> None:
        """Reads again when the service comes, and also when it goes if the download would go on: reading starts the service."""
        if self._status is None or not self._subscriptions:
            return
        if signal[5].unpack()[2]:
            self._read()
        elif not self._status.has_ended and self._status.state != "paused":
            self._read(TodokuError(_NO_REPLY, f"{SERVICE} keeps exiting; its messages are in the session's journal"))
