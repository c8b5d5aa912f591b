"""A broker's shared memory in one process: real slots over bytes, locks that are taken at random.

It is lost with the broker, and kept when only one of its processes dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odradek.cluster.configs import configdef
from odradek.ipc import slots
from odradek.ipc.slots import SlotTable
from odradek.ipc.traffic import WORDS, Traffic

from .world import Process, World

SLOTS = 64  # in a region; see seams


LOCKS: dict[Path, Locks] = {}  # by the run directory, which is all that callers have


class Bytes(bytearray):
    """Memory that outlives the process that writes it."""

    effect: Callable[[], None]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.effect()
        super().__setitem__(key, value)


class Words:
    """The same memory in words of 64 bits."""

    __slots__ = ("_effect", "_view")

    def __init__(self, memory: Bytes) -> None:
        self._view, self._effect = memoryview(memory).cast("q"), memory.effect

    def __getitem__(self, key: Any) -> Any:
        return self._view[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._effect()
        self._view[key] = value


class MemoryRegion:
    """The parts of a region that a slot needs."""

    at = 0

    def __init__(self, size: int, effect: Callable[[], None]) -> None:
        self.map = Bytes(size)
        self.map.effect = effect
        self.words = Words(self.map)


class MemoryTable(SlotTable):
    """The slot table."""

    def __init__(self, effect: Callable[[], None] = lambda: None) -> None:
        super().__init__("", 0)
        self._effect = effect
        self.create(1)

    def create(self, slots_wanted: int) -> None:
        while self.capacity < slots_wanted:
            self._regions.append(MemoryRegion(SLOTS * slots.STRIDE * 8, self._effect))  # type: ignore[arg-type]  # a test double

    def attach(self) -> None:
        pass


class Locks:
    """Partition locks: another process, or a thread that waits within its turn, holds one now and then."""

    def __init__(self, world: World, busy: float) -> None:
        self._world = world
        self._busy = busy
        self._holders: dict[int, Process] = {}

    def try_lock(self, slot: int) -> bool:
        holder = self._holders.get(slot)
        if self._world.chance(self._busy) or (holder is not None and holder.alive):
            return False
        if self._world.running:
            self._holders[slot] = self._world.running[-1]
        return True

    def unlock(self, slot: int) -> None:
        if self._world.running and self._holders.get(slot) is self._world.running[-1]:
            del self._holders[slot]


class _Metadata:
    version = 0


class Rows(dict[str, Any]):
    """The process table, which is not read here."""

    def row(self, role: int) -> list[int]:
        return [0] * 32

    def set(self, *_: Any) -> None:
        pass

    def add(self, *_: Any) -> None:
        pass


class Shared:
    """The memory of one run of a broker."""

    prefix = "/none"

    def __init__(self, world: World, broker: Any, busy: float) -> None:
        self.world = world
        self.broker = broker
        self.run_dir = Path(f"/nowhere/{broker.number}-{broker.lives}")
        self.slots = MemoryTable(world.effect)
        self.locks = LOCKS[self.run_dir] = Locks(world, busy)
        self.metadata = _Metadata()
        self.processes = Rows()
        self.traffic = Traffic(memoryview(bytearray(8 * WORDS)).cast("q"), 0)
        self.draining = False
        self._failed: set[int] = set()

    def failed_dirs(self) -> list[int]:
        return sorted(self._failed)

    def fail_dir(self, number: int) -> None:
        if number not in self._failed:
            self._failed.add(number)
            self.broker.disk.log_dirs[number].failed_at = self.world.now
            self.broker.disk_failed()


class Config(dict[str, Any]):
    """The part of a broker's static configuration that is read here."""

    clustered = True
    between_brokers = "PLAINTEXT"
    protocols = MappingProxyType({"PLAINTEXT": "PLAINTEXT"})
    dynamic: Mapping[str, str] = MappingProxyType({})

    def __init__(self, broker: int, disk: Any, **given: Any) -> None:
        super().__init__(given)
        self["broker.id"] = broker
        self.originals = {"broker.id": broker, **given}
        self.broker = broker
        self.log_dirs = tuple(disk.log_dirs)

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
