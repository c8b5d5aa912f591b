"""Wrapped calls in a process of a broker under test, which count down and end the process.

While no point is armed, a wrapped call only reads one word.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from typing import Any

from .arming import ACTION, LEFT, PID, place, words_of
from .points import POINTS, Point

_FIRST_FENCE = 1 << 40  # bytes of partition.lock from here on belong to no partition
_PATHS = ("open", "unlink", "mkdir", "rmdir", "truncate")
_TARGETS = ("rename", "replace")
_DESCRIPTORS = ("write", "pwrite", "pwritev", "fsync", "ftruncate")
_OTHERS = ("sendfile", "fork")


def install(path: str, command: Sequence[str]) -> None:
    """Wrap the calls of all points, in this process and in those that it forks."""
    if {"start", "run"}.intersection(command):
        Failpoints(words_of(path)).install()


def role() -> str:
    """`worker`, …, `supervisor`, `fork-server`, by the command line as it is now; "" for other commands."""
    with open("/proc/self/cmdline") as file:
        words = file.read().replace("\0", " ").split()
    if "run" in words[:-1]:
        return words[words.index("run") + 1]
    return next((word for word in ("fork-server", "start") if word in words), "").replace("start", "supervisor")


class Failpoints:
    """All points. Those of this process are determined while one is armed, since a fork changes the role."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.by_call: dict[tuple[str, str], list[tuple[int, Point]]] = {}
        for number, point in enumerate(POINTS):
            self.by_call.setdefault((point.call, point.when), []).append((place(number), point))

    # -- firing

    def hit(self, call: str, when: str, subject: Any = "", note: int = 0) -> None:
        """The process is at a call; `subject` is a path or a descriptor."""
        for at, point in self.by_call.get((call, when), ()):
            if self.words[at + LEFT] and self._matches(point, subject, note):
                left = self.words[at + LEFT] = self.words[at + LEFT] - 1
                if left <= 0:
                    self._go_off(at)

    def _matches(self, point: Point, subject: Any, note: int) -> bool:
        if role() not in point.roles or (point.note is not None and point.note != note):
            return False
        if point.path and not fnmatch(_path(subject), point.path):
            return False
        return not point.inside or _inside(point.inside)

    def _go_off(self, at: int) -> None:
        self.words[at + LEFT] = 0
        self.words[at + PID] = os.getpid()
        os.kill(os.getpid(), self.words[at + ACTION])

    # -- wrapping

    def around(self, name: str, call: Callable[..., Any], subject: Callable[..., Any]) -> Callable[..., Any]:
        """`call` with a check before and after it."""
        words, hit = self.words, self.hit

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not words[0]:
                return call(*args, **kwargs)
            what = subject(*args)
            note = what[1] if isinstance(what, tuple) else 0
            what = what[0] if isinstance(what, tuple) else what
            hit(name, "before", what, note)
            result = call(*args, **kwargs)
            hit(name, "after", what, note)
            return result

        return wrapped

    def install(self) -> None:
        """Wrap the calls of the points."""
        wanted = {call for call, _ in self.by_call}
        for names, subject in ((_PATHS, _first), (_TARGETS, _second), (_DESCRIPTORS, _first), (_OTHERS, _nothing)):
            for name in wanted.intersection(names):
                setattr(os, name, self.around(name, getattr(os, name), subject))
        if wanted & {"lock", "unlock"}:
            self._wrap_locks()
        if "commit" in wanted:
            self._wrap_sqlite()
        self._wrap_methods(wanted)

    def _wrap_locks(self) -> None:
        call, words = fcntl.fcntl, self.words

        def wrapped(fd: int, command: int, argument: Any = 0) -> Any:
            if not words[0] or command != fcntl.F_OFD_SETLK:
                return call(fd, command, argument)
            name = "lock" if int.from_bytes(argument[:2], "little") == fcntl.F_WRLCK else "unlock"
            fence = int.from_bytes(argument[8:16], "little") >= _FIRST_FENCE
            if not fence:
                self.hit(name, "before", fd)
            result = call(fd, command, argument)
            if not fence:
                self.hit(name, "after", fd)
            return result

        fcntl.fcntl = wrapped  # type: ignore[assignment]  # wrapped

    def _wrap_sqlite(self) -> None:
        around = self.around

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> Any:
                if sql != "COMMIT":
                    return super().execute(sql, *args)
                return around("commit", super().execute, _nothing)(sql, *args)

        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **kwargs: connect(  # type: ignore[assignment]  # wrapped
            *args, factory=Connection, **kwargs
        )

    def _wrap_methods(self, wanted: set[str]) -> None:
        """Methods and functions of the broker. Importing their modules here puts the wrapper before every user."""
        from odradek.broker.supervisor import forkserver_client
        from odradek.ipc import channel, doorbell, metadata, processes, producers, region, slots

        methods: list[tuple[str, Any, str, Callable[..., Any]]] = [
            ("publish", slots.Slot, "publish", lambda slot, *_: ("", slot.dirty)),
            ("ring", doorbell.Ringer, "ring", _nothing),
            ("producer", producers.ProducerTable, "append", _nothing),
            ("metadata", metadata.MetadataRegion, "publish", _nothing),
            ("send", channel.Channel, "send", lambda _, payload, fds=(): (payload[:1].decode("latin1"), len(fds))),
            ("receive", channel.Channel, "receive", _nothing),
            ("set", processes.ProcessTable, "set", lambda _, role, column, value: (column, value)),
            ("spawn", forkserver_client.ForkserverClient, "__call__", _nothing),
            ("enter", processes.ProcessTable, "enter", _nothing),
        ]
        for name, owner, method, subject in methods:
            if name in wanted:
                setattr(owner, method, self.around(name, getattr(owner, method), subject))
        if "region" in wanted:
            create = self.around("region", region.Region.create.__func__, _second)  # type: ignore[attr-defined]  # a class method
            region.Region.create = classmethod(create)  # type: ignore[assignment, method-assign]  # a test double


def _first(*args: Any) -> Any:
    return args[0]


def _second(*args: Any) -> Any:
    return args[1]


def _nothing(*_: Any) -> str:
    return ""


def _path(subject: Any) -> str:
    if isinstance(subject, int):
        return os.readlink(f"/proc/self/fd/{subject}").removesuffix(" (deleted)")
    return os.fspath(subject)


def _inside(place: str) -> bool:
    """Whether the function `module:name` (module under `odradek.`; no name: any of it) is being executed."""
    module, _, name = place.partition(":")
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "odradek." + module and name in ("", frame.f_code.co_name):
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return False
