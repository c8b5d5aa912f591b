"""A function in a process of its own that is killed, or waits, just before its n-th step.

A step is a call that others can see: a lock, or a file or directory opened, created or removed, below one of `places`
or /dev/shm itself. Python's audit hook counts them, so no line of the code under test knows of it.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from odradek.ipc.locks import SWEEP
from odradek.ipc.region import SHM

from ...harness.process import die_with_parent

_FILES = {"open", "os.remove", "os.rmdir", "os.link", "os.rename", "os.mkdir", "os.listdir", "os.scandir"}
_BYTES = (0, 1, SWEEP)  # of the many role bytes, all of which are handled alike


class Stepped:
    """The process. `deadly`: it is killed before step `step`, otherwise it waits there for `go_on`; 0: neither."""

    def __init__(self, run: Callable[[], object], places: Sequence[str], step: int = 0, deadly: bool = False) -> None:
        self.told, tell = os.pipe()
        wait, self._go = os.pipe()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _child(run, _Hook(places, step, deadly, tell, wait))
        os.close(tell)
        os.close(wait)

    def paused(self) -> bool:
        """Wait until it is at its step, or has ended; returns which."""
        return bool(os.read(self.told, 1))

    def go_on(self) -> None:
        """Let it continue; harmless when it has ended."""
        with suppress(BrokenPipeError):
            os.write(self._go, b"g")  # not closed: other children have inherited it

    def wait(self) -> int:
        """Its exit code; negative for a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.told)
            os.close(self._go)
        return self._status

    def kill(self) -> None:
        """SIGKILL."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class _Hook:
    def __init__(self, places: Sequence[str], step: int, deadly: bool, tell: int, wait: int) -> None:
        self._places, self._step, self._deadly, self._tell, self._wait = tuple(places), step, deadly, tell, wait
        self._count = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._counts(event, args):
            return
        self._count += 1
        if self._count != self._step:
            return
        if self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(self._tell, b"p")
        os.read(self._wait, 1)

    def _counts(self, event: str, args: tuple[Any, ...]) -> bool:
        if event == "fcntl.fcntl":
            return isinstance(args[2], bytes) and struct.unpack_from("q", args[2], 8)[0] in _BYTES
        if event in ("fcntl.flock", "os.truncate"):
            return True
        words = [str(word) for word in args[:2]]
        return event in _FILES and (SHM in words or any(word.startswith(self._places) for word in words))


def _child(run: Callable[[], object], hook: _Hook) -> NoReturn:
    code = 1
    try:
        die_with_parent()
        sys.addaudithook(hook)
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
