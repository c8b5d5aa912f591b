"""Python imports this in every process of a broker whose PYTHONPATH names this folder, and it injects faults.

ODRADEK_TEST_FAULTS names a file; while it is there, its JSON says what fails: `under` (a directory), `errno`, `calls`.
ODRADEK_TEST_CLOCK names a file of `pid milliseconds` lines: shifts the wall clock of that process.
ODRADEK_TEST_SHADOW names a directory: every fsync records the durable state there (tests/faults/power.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

_FAULTS = os.environ.get("ODRADEK_TEST_FAULTS", "")
_CLOCK = os.environ.get("ODRADEK_TEST_CLOCK", "")
_SHADOW = os.environ.get("ODRADEK_TEST_SHADOW", "")


def _path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _fault() -> Any:
    try:
        with open(_FAULTS) as file:
            return json.load(file)
    except FileNotFoundError:  # also if the file has just been removed
        return None


def _failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, *rest: Any, **named: Any) -> Any:
        fault = _fault()
        if fault is not None:
            path = _path(first) if isinstance(first, int) else os.fspath(first)
            if name in fault["calls"] and path.startswith(fault["under"]):
                raise OSError(fault["errno"], os.strerror(fault["errno"]), path)
        return real(first, *rest, **named)

    return call


def _off_ms() -> int:
    try:
        with open(_CLOCK) as file:
            rows = dict(line.split() for line in file)
    except (FileNotFoundError, ValueError):
        return 0
    return int(rows.get(str(os.getpid()), 0))


def _noting(real: Callable[[int], None]) -> Callable[[int], None]:
    import shadow  # type: ignore[import-not-found]  # next to this file

    def fsync(fd: int) -> None:
        note = shadow.before(fd, _SHADOW)  # the present state is durable once fsync returns
        real(fd)
        note()

    return fsync


def _creating(real: Callable[..., int]) -> Callable[..., int]:
    import shadow

    def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        fd = real(path, flags, *rest, **named)
        if flags & os.O_CREAT and not os.fstat(fd).st_size:
            shadow.created(fd, _SHADOW)
        return fd

    return opened


if _FAULTS:
    for _name in (
        "pwritev",
        "pwrite",
        "fsync",
        "ftruncate",
        "open",
        "pread",
        "preadv",
        "sendfile",
        "rename",
        "replace",
    ):
        setattr(os, _name, _failing(_name, getattr(os, _name)))
if _CLOCK:
    _time_ns = time.time_ns
    time.time_ns = lambda: _time_ns() + _off_ms() * 1_000_000
    time.time = lambda: time.time_ns() / 1e9
if _SHADOW:
    os.fsync = _noting(os.fsync)  # type: ignore[assignment]  # wrapped
    os.open = _creating(os.open)
