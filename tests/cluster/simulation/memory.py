"""A broker's shared memory without the sharing: real slots over bytes of this process, locks that are taken at random.

Gone with the broker; kept when only one of its processes dies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odradek.cluster import configdef
from odradek.ipc import slots
from odradek.ipc.slots import SlotTable
from odradek.ipc.traffic import WORDS, Traffic

from .world import World

SLOTS = 64  # in a region; see seams


LOCKS: dict[Path, Locks] = {}  # by the run directory: who asks has only that


class MemoryRegion:
    """What a slot wants of a region."""

    at = 0

    def __init__(self, size: int) -> None:
        self.map = bytearray(size)
        self.buf = memoryview(self.map)
        self.words = self.buf.cast("q")


class MemoryTable(SlotTable):
    """The slot table."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self.create(1)

    def create(self, slots_wanted: int) -> None:
        while self.capacity < slots_wanted:
            self._regions.append(MemoryRegion(SLOTS * slots.STRIDE * 8))  # type: ignore[arg-type]

    def attach(self) -> None:
        pass


class Locks:
    """Partition locks: somebody else has one of them now and then."""

    def __init__(self, world: World, busy: float) -> None:
        self._world = world
        self._busy = busy

    def try_lock(self, slot: int) -> bool:
        return not self._world.chance(self._busy)

    def unlock(self, slot: int) -> None:
        pass


class _Metadata:
    version = 0


class Rows(dict):
    """The process table, which nobody reads here."""

    def row(self, role: int) -> list[int]:
        return [0] * 32

    def set(self, *_: Any) -> None:
        pass


class Shared:
    """One life of a broker's memory."""

    prefix = "/none"

    def __init__(self, world: World, broker: Any, busy: float) -> None:
        self.world = world
        self.broker = broker
        self.run_dir = Path(f"/nowhere/{broker.number}-{broker.lives}")
        self.slots = MemoryTable()
        self.locks = LOCKS[self.run_dir] = Locks(world, busy)
        self.metadata = _Metadata()
        self.processes = Rows()
        self.traffic = Traffic(memoryview(bytearray(8 * WORDS)).cast("q"), 0)
        self.draining = False

    def failed_dirs(self) -> list[int]:
        return []

    def fail_dir(self, number: int) -> None:
        raise AssertionError(f"log directory {number} has failed")


class Config(dict):
    """A broker's static configuration, as far as anybody asks."""

    clustered = True

    def __init__(self, broker: int, disk: Any, **given: Any) -> None:
        super().__init__(given)
        self["broker.id"] = broker
        self.given = {"broker.id": broker, **given}
        self.broker = broker
        self.log_dirs = (disk,)

    @property
    def advertised(self) -> list[Any]:
        return [Endpoint("PLAINTEXT", f"broker-{self.broker}", 9092)]

    def __missing__(self, name: str) -> Any:
        value = self[name] = configdef.broker_default(name)
        return value


class Endpoint:
    """A listener."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name, self.host, self.port = name, host, port
