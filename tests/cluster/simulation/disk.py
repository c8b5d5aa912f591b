"""Logs of a broker, which outlive it: records as (epoch, value), and the start offsets of epochs.

`store` has the operations of the modules of storage on them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from odradek.ipc import roles, slots
from odradek.ipc.partition_counts import NOWHERE
from odradek.ipc.slots import Fields, SlotState
from odradek.storage.log import repair
from odradek.storage.log.log import Log, PartitionLocation
from odradek.storage.log.partition import TRUNCATING, LockNotAvailable, PartitionRemoved
from odradek.storage.segment.epochs import EpochCache

from . import store

LOG_DIRS = 3  # of each broker


class LogDir:
    """One log directory. `broken`: its disk fails all writes."""

    def __init__(self, disk: Disk, number: int) -> None:
        self.disk = disk
        self.number = number
        self.directories: dict[tuple[str, int], Directory] = {}
        self.broken = False
        self.failed_at = 0.0  # when its broker found that

    def __str__(self) -> str:
        return f"/logs-{self.number}"

    def write(self) -> None:
        """Called before each write. OSError, or Killed."""
        self.disk.effect()
        self.read()

    def read(self) -> None:
        """Raise OSError as the disk does."""
        if self.broken:
            raise OSError(errno.EIO, "the disk is broken", f"{self}/some")


class Directory:
    """A partition's directory. `chain[n]` stands for the first n records, whatever they are."""

    def __init__(self, log_dir: LogDir, topic: str, index: int, topic_id: bytes) -> None:
        self.log_dir = log_dir
        self.disk = log_dir.disk
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.records: list[Any] = []  # (epoch, value), None below the base
        self.chain: list[Any] = [0]
        self.epochs: list[tuple[int, int]] = []
        self.checkpoint = self.start_checkpoint = 0  # of the high watermark and of the log start
        self.base = 0  # of its first segment; there are stand-ins for records below, as DeleteRecords deletes no file
        self.synced = 0  # records that no loss of power takes
        self.truncations = 0
        self.deleted = False
        self.emptied = False  # it has no segment: a death in the midst of `restart`
        self._shown = 0

    @property
    def key(self) -> tuple[bytes, int]:
        """The partition, for any topic that has had the name."""
        return self.topic_id, self.index

    def add(self, epoch: int, value: int) -> None:
        """Write a record behind the others; it counts when it is `shown`."""
        self.log_dir.write()
        self.records.append((epoch, value))
        self.chain.append(None if self.chain[-1] is None else hash((self.chain[-1], epoch, value)))

    def shown(self) -> None:
        """All records here count."""
        for offset in range(self._shown, len(self.records)):
            self.disk.appended(self, offset)
        self._shown = len(self.records)

    def cut(self, end: int) -> None:
        """Remove the records from offset `end` on."""
        if end < len(self.records):
            self.log_dir.write()
            self.truncations += 1
            del self.records[end:], self.chain[end + 1 :]
            self._shown, self.synced = min(self._shown, end), min(self.synced, end)
            self.disk.truncated(self)

    def restart(self, offset: int) -> None:
        """Empty the log and start it at that offset; the records of other replicas below it are unknown."""
        self.cut((len(self.records) + self.base) // 2)
        self.cut(0)
        self.emptied = True
        self.log_dir.write()
        self.base, self.epochs, self.emptied = offset, [], False
        self.records, self.chain = [None] * offset, [None if offset else 0] * (offset + 1)
        self._shown = self.synced = offset

    def lose_unsynced(self, between: Callable[[int, int], int]) -> None:
        """Lose some records at its end that were in memory only."""
        end = between(max(self.synced, self.base), len(self.records))
        self.cut(end)
        cache = self.cache()
        cache.truncate_from_end(end)
        self.note(cache)

    def cache(self) -> EpochCache:
        return EpochCache(self.epochs)

    def note(self, cache: EpochCache) -> None:
        self.log_dir.write()
        self.epochs = [tuple(entry) for entry in cache.entries]  # type: ignore[misc]  # pairs


class Disk:
    """All log directories of a broker."""

    def __init__(
        self, broker: int, effect: Callable[[], None], appended: Callable[[Directory, int], None],
        truncated: Callable[[Directory], None], led: Callable[[Directory, int], None],
        released: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """The callbacks: before any change, when the record at an offset counts in a log, when a log is truncated or
        gone, when a leader appends in an epoch, and when a partition's lock is released.
        """
        self.broker = broker
        self.effect = effect
        self.appended = appended
        self.truncated = truncated
        self.led = led
        self.released = released
        self.log_dirs = [LogDir(self, number) for number in range(LOG_DIRS)]

    def all(self) -> Iterator[Directory]:
        """All partition directories."""
        for log_dir in self.log_dirs:
            yield from log_dir.directories.values()

    def find(self, topic: str, key: tuple[bytes, int]) -> Directory | None:
        """The directory of a partition of that very topic; of two the one whose disk works."""
        found = [one for log_dir in self.log_dirs if (one := log_dir.directories.get((topic, key[1])))]
        return next((one for one in sorted(found, key=lambda one: one.log_dir.broken) if one.key == key), None)

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        for log_dir in self.log_dirs:
            self.wipe_dir(log_dir)

    def wipe_dir(self, log_dir: LogDir) -> None:
        """Replace one of the disks by an empty one."""
        directories, log_dir.directories = log_dir.directories, {}
        for directory in directories.values():
            directory.deleted = True
            self.truncated(directory)

    def lose_unsynced(self, between: Callable[[int, int], int]) -> dict[tuple[bytes, int], tuple[int, list[Any]]]:
        """Logs lose some records that were in memory only; returns where those logs end now, and the lost records."""
        before = {one: list(one.records) for one in self.all() if not one.log_dir.broken}
        for directory in before:
            directory.lose_unsynced(between)
        ends = {one: len(one.records) for one in before}
        return {one.key: (ends[one], had[ends[one] :]) for one, had in before.items() if ends[one] < len(had)}

    def mend(self) -> None:
        """Repair all disks. Where a log was recreated in another directory meanwhile, remove the older one: Kafka does
        not start with both either.
        """
        fine = [log_dir for log_dir in self.log_dirs if not log_dir.broken]
        for log_dir in self.log_dirs:
            if log_dir.broken:
                log_dir.broken, log_dir.failed_at = False, 0.0
                for key in [key for key in log_dir.directories if any(key in other.directories for other in fine)]:
                    log_dir.directories.pop(key).deleted = True


class Dirs:
    """broker.controller.replicas.partition_dirs over such disks."""

    def __init__(
        self, log_dirs: Sequence[LogDir], turns: None, failed: Callable[[], Any], _fail: Callable[[int], None]
    ) -> None:
        self.log_dirs = tuple(log_dirs)
        self._failed = failed
        working = [log_dir for log_dir in log_dirs if log_dir.number not in failed()]
        self._where = {key: log_dir.number for log_dir in working for key in log_dir.directories}

    @property
    def failed(self) -> Any:
        return self._failed()

    def found(self) -> list[tuple[str, int]]:
        return list(self._where)

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def _at(self, topic: str, partition: int) -> Directory:
        log_dir = self.log_dirs[self._where[topic, partition]]
        log_dir.read()
        return log_dir.directories[topic, partition]

    def topic_id(self, topic: str, partition: int) -> bytes:
        return self._at(topic, partition).topic_id

    def has_log(self, topic: str, partition: int) -> bool:
        return bool(self._at(topic, partition).records)

    def has(self, topic: str, partition: int, topic_id: bytes) -> bool:
        number = self._where.get((topic, partition))
        return number is not None and number not in self._failed() and self.topic_id(topic, partition) == topic_id

    def adopt(self, topic: str, partition: int, topic_id: bytes) -> int:
        if (topic, partition) not in self._where and self._failed():
            raise OSError("its log is in no online log directory")
        if (topic, partition) in self._where and self.topic_id(topic, partition) == topic_id:
            return self._where[topic, partition]
        return self.create(topic, partition, topic_id)

    def create(self, topic: str, partition: int, topic_id: bytes) -> int:
        if self._where.get((topic, partition)) in self._failed():
            self.forget(topic, partition)
        elif (topic, partition) in self._where:
            self.retire(topic, partition)
        usable = [log_dir for log_dir in self.log_dirs if log_dir.number not in self._failed()]
        if not usable:
            raise OSError("no log directory is online")
        log_dir = min(usable, key=lambda one: len(one.directories))
        log_dir.write()
        log_dir.directories[topic, partition] = Directory(log_dir, topic, partition, topic_id)
        self._where[topic, partition] = log_dir.number
        return log_dir.number

    def holding(self, path: str) -> int | None:
        return next((one.number for one in self.log_dirs if path.startswith(f"{one}/")), None)

    def forget(self, topic: str, partition: int) -> None:
        self._where.pop((topic, partition), None)

    def put_away(self, topic: str, partition: int, rename: Callable[[str, int], None]) -> None:
        with suppress(OSError):
            rename(topic, partition)

    def retry(self, now: float) -> None:
        pass

    def set_aside(self, topic: str, partition: int) -> None:
        self.retire(topic, partition)

    def retire(self, topic: str, partition: int) -> None:
        log_dir = self.log_dirs[self._where[topic, partition]]
        log_dir.write()
        directory = log_dir.directories.pop((topic, partition), None)
        del self._where[topic, partition]
        if directory is not None:
            directory.deleted = True
            directory.disk.truncated(directory)


class MemoryPartition:
    """storage.log.partition: the slot and the directory."""

    pending: list[Any] = []
    counts = NOWHERE

    def __init__(self, log: MemoryLog, topic: str, index: int, place: PartitionLocation, directory: Directory) -> None:
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
            raise LockNotAvailable
        try:
            return self._taken()
        except BaseException:
            self.owner.locks.unlock(self.slot.number)
            raise

    def _taken(self) -> Fields:
        values = self.slot.record_holder(1)
        if values[slots.F_INCARNATION] != self.incarnation or values[slots.F_STATE] == slots.DELETING:
            raise PartitionRemoved
        if self.slot.dirty:
            self._repair(values)
            self.slot.dirty = 0
        return values

    def _repair(self, values: Fields) -> None:
        """storage.log.repair."""
        if values[slots.F_STATE] not in (slots.LEADER, slots.FOLLOWER):
            return
        if self.slot.dirty == TRUNCATING:
            store.Truncate.finish(self, values)
            return
        self.directory.cut(values[slots.F_LEO])
        repair._cut_epochs(self, values)  # type: ignore[arg-type]  # a test double

    def record_wait(self) -> None:
        """No holder is ever stuck here."""

    def release(self, changed: bool = True) -> None:
        """Unless its process is dead: then the kernel releases it, and no doorbell rings."""
        running = self.owner.shared.world.running
        if running and not running[-1].alive:
            return
        self.directory.disk.released(self)
        self.owner.locks.unlock(self.slot.number)
        if changed:
            self.owner.changed()

    def bases(self, active_base: int, generation: int) -> list[int]:
        return [self.directory.base]

    def close_files(self) -> None:
        pass


class MemoryLog(Log):
    """storage.log.log: one process's partitions."""

    pid = 1

    def __init__(self, shared: Any, rundir: object, role: int, resolve: Any, configure: Any) -> None:
        self.shared: Any = shared
        self.role = role
        self.locks = shared.locks
        self.ring = shared.broker.ring
        self.changed = shared.broker.changed
        self._resolve = resolve
        self._configure = configure
        self._partitions: dict[tuple[str, int], Any] = {}
        self._open: Any = {}

    def _make(self, topic: str, index: int, place: PartitionLocation) -> Any:
        log_dir: Any = place.log_dir
        directory = log_dir.directories.get((topic, index)) or Directory(log_dir, topic, index, place.topic_id)
        return MemoryPartition(self, topic, index, place, directory)

    def get(self, topic: str, index: int) -> Any:
        """Leave it as it is, unless the directory is gone: the metadata is older than that, or there never was one."""
        place = self._resolve(topic, index) if self.role != roles.CONTROLLER else None
        if place is not None and (topic, index) not in place.log_dir.directories:  # type: ignore[attr-defined]  # a simulated directory
            return None
        return super().get(topic, index)

    def sweep(self) -> None:
        pass
