"""The report of `odradek status --all`: the brokers of this user on this machine, and /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from odradek.broker.commands._shared.tables import cell
from odradek.broker.process.status import table
from odradek.broker.supervisor import known_brokers
from odradek.broker.supervisor.known_brokers import DEAD, RUNNING, UNKNOWN, KnownBroker
from odradek.ipc.region import SHM


class Seen(NamedTuple):
    """`size` and `free` of /dev/shm in bytes; -1: it is not there, 0: it has no limit."""

    size: int
    free: int
    brokers: Sequence[KnownBroker]

    @property
    def running(self) -> bool:
        """Whether a broker is running."""
        return any(one.state == RUNNING for one in self.brokers)

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        shm = {"path": SHM, "size": self.size, "free": self.free}
        return {"shm": shm, "brokers": [one.as_json() for one in self.brokers]}


def look() -> Seen:
    """The brokers now."""
    try:
        room = os.statvfs(SHM)
    except OSError:
        return Seen(-1, -1, known_brokers.now())
    return Seen(room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize, known_brokers.now())


def render(seen: Seen) -> str:
    """The screen: one row a broker, the memory, and what to do about dead ones."""
    parts = [table([*_rows(seen.brokers)]) if seen.brokers else "no brokers of this user", "", _memory_line(seen)]
    return "\n".join([*parts, *_advice(seen.brokers)])


def _rows(brokers: Sequence[KnownBroker]) -> Iterator[list[str]]:
    yield ["STATE", "PID", "PROCESSES", "REGIONS", "MEMORY", "DATA", "RUN DIR", "KEY"]
    for one in brokers:
        memory = f"{one.shm_bytes / (1 << 20):.1f} MiB"
        places = [cell(one.data_dir), cell(one.run_dir), one.key]
        yield [one.state, cell(one.pid), str(one.processes), str(one.regions), memory, *places]


def _memory_line(seen: Seen) -> str:
    if seen.size <= 0:
        return f"{SHM} does not exist" if seen.size else f"{SHM} has no limit"
    return f"{SHM}: {seen.free >> 20:,} of {seen.size >> 20:,} MiB are free"


def _advice(brokers: Sequence[KnownBroker]) -> Iterator[str]:
    if any(one.removed_by_start for one in brokers):
        yield "the next `odradek start` of this user removes what dead brokers left"
    for one in brokers:
        if one.state == DEAD and not one.removed_by_start:
            yield f"a start on {one.data_dir} removes what that broker left; no other start can tell that it is dead"
    if any(one.state == UNKNOWN for one in brokers):
        yield f"unknown: the run directory is elsewhere, or in a container; if no broker is, remove {SHM}/odradek-KEY-*"
