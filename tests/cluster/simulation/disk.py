"""Logs of a broker, which outlive it: records as (epoch, value), and which epoch began where.

What modules of storage do to them is in `store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odradek.ipc import slots
from odradek.ipc.slots import Fields, SlotState
from odradek.storage import repair
from odradek.storage.epochs import EpochCache
from odradek.storage.log import Log, Place
from odradek.storage.partition import Busy, Gone


class Directory:
    """A partition's directory. `chain[n]` stands for the first n records, whatever they are."""

    def __init__(self, disk: Disk, topic: str, index: int, topic_id: bytes) -> None:
        self.disk = disk
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.records: list[Any] = []  # (epoch, value), None below the base
        self.chain: list[Any] = [0]
        self.epochs: list[tuple[int, int]] = []
        self.checkpoint = self.start_checkpoint = 0  # of the high watermark and of the log start
        self.base = 0  # of its first segment; there are stand-ins for records below, as DeleteRecords deletes no file
        self.truncations = 0
        self.deleted = False

    @property
    def key(self) -> tuple[bytes, int]:
        """Which partition it is, of whatever topic has had the name."""
        return self.topic_id, self.index

    def add(self, epoch: int, value: int) -> None:
        self.records.append((epoch, value))
        self.chain.append(None if self.chain[-1] is None else hash((self.chain[-1], epoch, value)))
        self.disk.appended(self)

    def cut(self, end: int) -> None:
        """No record from offset `end` on."""
        if end < len(self.records):
            self.truncations += 1
            del self.records[end:], self.chain[end + 1 :]
            self.disk.truncated(self)

    def restart(self, offset: int) -> None:
        """Empty, and begins at that offset; what others have below is not known."""
        self.cut(0)
        self.base, self.epochs = offset, []
        self.records, self.chain = [None] * offset, [None if offset else 0] * (offset + 1)

    def cache(self) -> EpochCache:
        return EpochCache(self.epochs)

    def note(self, cache: EpochCache) -> None:
        self.epochs = [tuple(entry) for entry in cache.entries]  # type: ignore[misc]


class Disk:
    """All directories of a broker."""

    def __init__(
        self, broker: int, appended: Callable[[Directory], None], truncated: Callable[[Directory], None],
        led: Callable[[Directory, int], None], released: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """What is called when a record is appended to any log, when one is truncated or gone, when a leader appends in
        an epoch, and when a partition's lock is given back.
        """
        self.broker = broker
        self.appended = appended
        self.truncated = truncated
        self.led = led
        self.released = released
        self.directories: dict[tuple[str, int], Directory] = {}

    def wipe(self) -> None:
        """It is another one, empty."""
        directories, self.directories = self.directories, {}
        for directory in directories.values():
            directory.deleted = True
            self.truncated(directory)

    def lose_unflushed(self, between: Callable[[int, int], int]) -> None:
        """Some records at the end of each log were in memory only."""
        for directory in self.directories.values():
            directory.cut(between(max(directory.checkpoint // 2, directory.base), len(directory.records)))
            cache = directory.cache()
            cache.truncate_from_end(len(directory.records))
            directory.note(cache)


class Dirs:
    """broker.partition_dirs over one such disk, which does not fail."""

    failed: tuple[int, ...] = ()

    def __init__(self, log_dirs: Sequence[Disk], turns: None, failed: Callable[[], Any]) -> None:
        self.log_dirs = tuple(log_dirs)
        self._all = log_dirs[0].directories

    def found(self) -> list[tuple[str, int]]:
        return list(self._all)

    def __contains__(self, key: object) -> bool:
        return key in self._all

    def topic_id(self, topic: str, partition: int) -> bytes:
        return self._all[topic, partition].topic_id

    def has_log(self, topic: str, partition: int) -> bool:
        return bool(self._all[topic, partition].records)

    def adopt(self, topic: str, partition: int, topic_id: bytes) -> int:
        there = self._all.get((topic, partition))
        if there is None or there.topic_id != topic_id:
            self.create(topic, partition, topic_id)
        return 0

    def create(self, topic: str, partition: int, topic_id: bytes) -> int:
        if (topic, partition) in self._all:
            self.retire(topic, partition)
        self._all[topic, partition] = Directory(self.log_dirs[0], topic, partition, topic_id)
        return 0

    def set_aside(self, topic: str, partition: int) -> None:
        self.retire(topic, partition)

    def retire(self, topic: str, partition: int) -> None:
        directory = self._all.pop((topic, partition))
        directory.deleted = True
        directory.disk.truncated(directory)


class MemoryPartition:
    """storage.partition: the slot and the directory."""

    pending: list[Any] = []

    def __init__(self, log: MemoryLog, topic: str, index: int, place: Place, directory: Directory) -> None:
        self.owner = log
        self.topic, self.index, self.topic_id = topic, index, place.topic_id
        self.slot = log.shared.slots[place.slot]
        self.incarnation = place.incarnation
        self.directory = directory

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def state(self) -> SlotState:
        return self.slot.state()

    @contextmanager
    def locked(self) -> Iterator[Fields]:
        values = self.acquire()
        try:
            yield values
        finally:
            self.release()

    def acquire(self) -> Fields:
        if not self.owner.locks.try_lock(self.slot.number):
            raise Busy
        values = self.slot.taken(1)
        if values[slots.F_INCARNATION] != self.incarnation or values[slots.F_STATE] == slots.DELETING:
            raise Gone
        if self.slot.dirty:
            repair._cut_epochs(self, values)  # type: ignore[arg-type]
            self.slot.dirty = 0
        return values

    def release(self, changed: bool = True) -> None:
        self.directory.disk.released(self)
        if changed:
            self.owner.changed()

    def bases(self, active_base: int, generation: int) -> list[int]:
        return [self.directory.base]

    def close_files(self) -> None:
        pass


class MemoryLog(Log):
    """storage.log: one process's partitions."""

    def __init__(self, shared: Any, rundir: object, role: int, resolve: Any, configure: Any) -> None:
        self.shared = shared
        self.role = role
        self.locks = shared.locks
        self.ring = shared.broker.ring
        self.changed = shared.broker.changed
        self._resolve = resolve
        self._configure = configure
        self._partitions: dict[tuple[str, int], Any] = {}
        self._open: Any = {}

    def _make(self, topic: str, index: int, place: Place) -> Any:
        directory = place.log_dir.directories[topic, index]  # type: ignore[attr-defined]
        return MemoryPartition(self, topic, index, place, directory)

    def get(self, topic: str, index: int) -> Any:
        """As it is, but for a directory that is gone: the metadata is older than that."""
        place = self._resolve(topic, index)
        if place is not None and (topic, index) not in place.log_dir.directories:  # type: ignore[attr-defined]
            return None
        return super().get(topic, index)

    def sweep(self) -> None:
        pass
