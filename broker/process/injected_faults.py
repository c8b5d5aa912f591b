"""A full disk and another wall clock, in one process of a broker that a program has started for tests.

Only with `odradek.faults.file`: then a process replaces some functions of `os` and `time` as it starts. Otherwise it
does not load this module. The faults come and go with the words of ipc.faults.fault_table.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.broker.errors import BootError
from odradek.ipc.faults.fault_table import CLOCK, DISK_FULL, FaultTable, FaultTableError

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig

_WRITES = ("pwrite", "pwritev", "posix_fallocate")


def api_keys() -> dict[str, int]:
    """The APIs that can meet faults: their keys by their names in small letters."""
    from odradek.workers.apis import table

    return {name.lower(): key for key, name in table.names().items()}


def install(config: BrokerConfig) -> None:
    """Replace the functions, from now on and for good. BootError: the file is not a table of faults."""
    try:
        words = FaultTable.attach(config["odradek.faults.file"]).words
    except FaultTableError as error:
        raise BootError(str(error)) from None
    _shift_clock(words)
    _fill_disks(words, tuple(f"{folder}/" for folder in config.log_dirs))


def _shift_clock(words: memoryview) -> None:
    real = time.time_ns
    time.time_ns = lambda: real() + words[CLOCK]
    time.time = lambda: time.time_ns() / 1e9


def _fill_disks(words: memoryview, folders: tuple[str, ...]) -> None:
    """What needs room below `folders` fails: writes, new files and new folders. Metadata of a standalone broker is in
    SQLite, which does not call `os`: its changes succeed."""

    def wrapped(real: Callable[..., Any], path_of: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if words[DISK_FULL] and (path := path_of(*args)).startswith(folders):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return real(*args, **named)

        return call

    for name in _WRITES:
        setattr(os, name, wrapped(getattr(os, name), _path_of_descriptor))
    os.open = wrapped(os.open, _path_of_new_file)
    os.mkdir = wrapped(os.mkdir, lambda path, *_: os.fspath(path))


def _path_of_descriptor(fd: int, *_: Any) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _path_of_new_file(path: Any, flags: int, *_: Any) -> str:
    """Empty if the file is there, or is not to be made."""
    return "" if not flags & os.O_CREAT or os.path.exists(path) else os.path.abspath(os.fspath(path))
