"""What a test can make its broker do: refuse, delay, answer with errors, stand still, find its disk full.

Each is a block, at whose end all is as before, however the block ends. The broker ends with the program, and processes
that stand still then continue, so that no fault outlives it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from odradek.broker.errors import OdradekError
from odradek.ipc.faults.fault_table import CLOCK, DISK_FULL, NO_BOUND, REFUSING, FaultTable

if TYPE_CHECKING:
    import psutil

_MOST_SECONDS = 3600.0  # of a delay
_STEP_S = 0.002
_STOP_S = 10.0
# Continues processes when the program ends within a block: its end of the pipe is closed then.
_WAKER = 'read -r _; kill -CONT "$@" 2>/dev/null'


class FaultError(OdradekError):
    """A fault that the broker cannot have; the text says what to change."""


class Fault:
    """A fault of requests: `hits` is how many have met it."""

    def __init__(self, table: FaultTable, row: int) -> None:
        self._table: FaultTable | None = table
        self._row = row
        self._last = 0

    @property
    def hits(self) -> int:
        """How many requests have met it so far; after the block, in the block."""
        if self._table is not None:
            self._last = self._table.hits(self._row)
        return self._last

    def end(self) -> None:
        """Remove it, and keep the number; harmless when it was removed."""
        if self._table is not None:
            self._last = self.hits
            self._table.remove(self._row)
            self._table = None


class Faults:
    """The faults of a `Broker`, which is its only subclass."""

    def __init__(self) -> None:
        self._table: FaultTable | None = None  # while it runs
        self._set: list[Fault] = []
        self._changes = threading.Lock()

    if TYPE_CHECKING:

        @property
        def pid(self) -> int:
            """The pid of the broker's supervisor, which `Broker` has."""

    # -- requests

    def failing(self, api: str, error: str, times: int | None = None, after: int = 0) -> AbstractContextManager[Fault]:
        """Requests of this API, such as "Produce", are answered with this error code, such as
        "NOT_LEADER_OR_FOLLOWER", and have no other effect: the first `times` of them, or all in the block, but not the
        `after` first ones. Raises FaultError for names that Kafka does not have."""
        return self._requests(_key_of(api), _code_of(error), 0, times, after)

    def delaying(
        self, api: str, seconds: float, times: int | None = None, after: int = 0
    ) -> AbstractContextManager[Fault]:
        """Requests of this API are served so many seconds later; requests behind them on the same connection wait."""
        if not 0 < seconds <= _MOST_SECONDS:
            raise FaultError(f"seconds={seconds}: it must be above 0 and at most {_MOST_SECONDS:g}")
        return self._requests(_key_of(api), 0, max(1, round(seconds * 1000)), times, after)

    @contextmanager
    def _requests(self, key: int, error: int, delay_ms: int, times: int | None, after: int) -> Iterator[Fault]:
        if (times is not None and times < 1) or after < 0:
            raise FaultError(f"times={times}, after={after}: times must be above 0, and after must not be negative")
        table = self._faults()
        with self._changes:
            fault = Fault(table, table.add(key, error, delay_ms, NO_BOUND if times is None else times, after))
            self._set.append(fault)
        try:
            yield fault
        finally:
            with self._changes:
                fault.end()

    # -- connections, the disk, the clock

    def refusing(self) -> AbstractContextManager[None]:
        """New connections are closed before they are served; those that are open stay."""
        return self._word(REFUSING, 1)

    def disk_full(self) -> AbstractContextManager[None]:
        """Writes to logs and new files in the log directories fail as on a full disk (ENOSPC). Fetches work."""
        return self._word(DISK_FULL, 1)

    def clock(self, offset: float | timedelta) -> AbstractContextManager[None]:
        """The wall clock of the broker is ahead by so many seconds, or behind. It is that of LogAppendTime, retention
        and token lifetimes; timeouts of sessions and requests do not depend on it, as in Kafka."""
        seconds = offset.total_seconds() if isinstance(offset, timedelta) else offset
        return self._word(CLOCK, round(seconds * 1e9))

    @contextmanager
    def _word(self, word: int, amount: int) -> Iterator[None]:
        table = self._faults()
        with self._changes:
            table.words[word] += amount
        try:
            yield
        finally:
            with self._changes:
                if table is self._table:  # the broker was not stopped within the block
                    table.words[word] -= amount

    def _faults(self) -> FaultTable:
        assert self.pid
        if self._table is None:
            raise FaultError("this broker was started without faults: do not set odradek.faults.file")
        return self._table

    def _forget_faults(self) -> None:
        """The broker has ended."""
        with self._changes:
            for fault in self._set:
                fault.end()
            if self._table is not None:
                self._table.close()
            self._set, self._table = [], None

    # -- processes

    @contextmanager
    def paused(self, process: str | None = None) -> Iterator[None]:
        """SIGSTOP for the processes of that name ("worker", "worker-0", "coordinator", …), or for the whole broker;
        SIGCONT at the end of the block."""
        members = self._members(process)
        waker = _waker([member.pid for member in members])
        try:
            for member in members:
                member.suspend()
            _await_stop(members)
            yield
        finally:
            for member in reversed(members):
                _signal(member.resume)
            waker.communicate()

    def _kill_members(self, name: str) -> None:
        members = self._members(name)
        for member in members:
            _signal(member.kill)
        _wait(members)

    def _members(self, name: str | None) -> list[psutil.Process]:
        """The broker's processes of that name, its first one before those that it has started."""
        import psutil

        first = psutil.Process(self.pid)
        named = {member: _name_of(member) for member in first.children(recursive=True)}
        if name is None:
            return [first, *named]
        found = [member for member, own in named.items() if own == name or own.rpartition("-")[0] == name]
        if not found:
            raise FaultError(
                f"the broker has no process {name!r}: it has {', '.join(sorted(filter(None, named.values())))}"
            )
        return found


def _key_of(api: str) -> int:
    from odradek.broker.process.injected_faults import api_keys

    key = api_keys().get(api.lower())
    if key is not None:
        return key
    raise FaultError(f"api={api!r}: Kafka has no such API, or this broker does not serve it; one is Produce")


def _code_of(error: str) -> int:
    from odradek.protocol.errors import Error

    try:
        code = int(Error[error])
    except KeyError:
        raise FaultError(
            f"error={error!r}: no error code of Kafka has this name; one is NOT_LEADER_OR_FOLLOWER"
        ) from None
    if not code:
        raise FaultError("error='NONE' is none")
    return code


def _name_of(process: psutil.Process) -> str:
    """`worker-0`, `coordinator`, as its title says; empty for others."""
    import psutil

    try:
        words = " ".join(process.cmdline()).split()
    except psutil.Error:
        return ""
    if "run" not in words[:-1]:
        return ""
    name = words[words.index("run") + 1]
    return f"{name}-{words[words.index('--id') + 1]}" if "--id" in words else name


def _signal(send: Callable[[], None]) -> None:
    import psutil

    with suppress(psutil.NoSuchProcess):
        send()


def _wait(members: Sequence[psutil.Process]) -> None:
    import psutil

    psutil.wait_procs(members, _STOP_S)


def _await_stop(members: Sequence[psutil.Process]) -> None:
    """A process that another CPU runs stops a moment after the signal."""
    import psutil

    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess):
            if all(member.status() == psutil.STATUS_STOPPED for member in members):
                return
        time.sleep(_STEP_S)


def _waker(pids: Sequence[int]) -> subprocess.Popen[bytes]:
    words = ["/bin/sh", "-c", _WAKER, "sh", *map(str, pids)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
