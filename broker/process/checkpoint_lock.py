"""The lock of a log directory's offset checkpoints: one writer at a time, and no lines of deleted partitions.

A line names a topic without its id. If a deleted topic left its line when a topic of the same name is created, recovery
would apply it to the new log: a log start beyond the log end removes the log, a high watermark exposes uncommitted
records, a recovery point skips the check of a torn end. So the controller removes the lines before it creates a
partition's directory, and the janitor, whose metadata may be older, must not write them again.

Layout    : `checkpoint.lock` in the run directory, a byte for each log directory.
Owner     : the kernel, as for all locks (ipc.locks).
Writers   : the process that holds a directory's byte, and reads the partitions' slots after it has locked it: the slot
            of a deleted partition says so before its name can be used again.
Crash rule: files are replaced whole; a dead holder's byte is free, a stopped holder's once it is killed
(broker.supervisor.stopped_processes).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from odradek.ipc.locks import ByteLocks
from odradek.ipc.slots import F_ACTIVE_BASE, F_FLUSHED, F_LOG_DIR, F_LOG_START, F_TRUNCATIONS, Fields
from odradek.storage.files import checkpoints, names
from odradek.storage.files.checkpoints import OFFSET_CHECKPOINTS, CheckpointError, OffsetFile
from odradek.storage.log.partition import LockNotAvailable, Partition

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.lock"
_PAUSE_S = 0.001
_SHORT_S = 0.01


class CheckpointLocks:
    """One process's view of the locks."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._locks = ByteLocks(Path(run_dir, FILE_NAME))

    @contextmanager
    def of(self, number: int, timeout_s: float = math.inf) -> Iterator[None]:
        """Hold the lock of log directory `number`; waits for another writer, and so for its disk.

        Raises LockNotAvailable after `timeout_s`: a holder of a partition's lock must not wait for a disk unseen.
        """
        until = time.monotonic() + timeout_s
        while not self._locks.try_lock(number):
            if time.monotonic() >= until:
                raise LockNotAvailable
            time.sleep(_PAUSE_S)
        try:
            yield
        finally:
            self._locks.unlock(number)


def lower(partition: Partition, fields: Fields) -> None:
    """Lower the checkpoints of a partition that is about to be truncated to at most `fields`; then publish `fields`.

    Kafka does this with the recovery point: otherwise recovery after a power failure would trust records appended after
    the cut unseen. And a log start beyond the log end would remove them at the next start. This is rare, as truncated
    records are mostly not synced yet. All happens under one hold of the lock, the checkpoints first: a process dying in
    between has published nothing, so that its successor lowers all; and the janitor, which reads the slot under the
    lock, writes no old line once `fields` are published. The caller holds the partition's lock, so it must not wait for
    another process's sync: raises LockNotAvailable while another writes. Its own four syncs renew the lock
    (storage.files.durable). Raises the disk's OSError.
    """
    with CheckpointLocks(partition.owner.run_dir).of(fields[F_LOG_DIR], _SHORT_S):
        _lower(partition, checkpoints.RECOVERY_POINT, fields[F_FLUSHED], fields[F_FLUSHED])
        _lower(partition, checkpoints.LOG_START, fields[F_LOG_START], fields[F_LOG_START])
        partition.slot.publish(fields)


def lower_cleaner_point(partition: Partition, values: Fields, offset: int) -> None:
    """Reset the cleaner's checkpoint of a log that is about to be cut at `offset`: all of the log is dirty.

    A checkpoint at or below `offset` stays. The janitor writes the same once it sees the cut, but a broker that dies
    first would treat the records after the cut as clean at its next start (see broker.janitor.cleaner_offsets). A
    compaction may be just ending: the slot announces the cut (`truncations`; also in `values`) under the same hold of
    the lock, so that the cleaner does not overwrite this line. No compaction goes beyond the sealed segments: the usual
    cut, in the active one, needs no lock. Errors as above.
    """
    if offset >= values[F_ACTIVE_BASE] and _line(partition, checkpoints.CLEANER) <= offset:
        return
    fields = partition.slot.fields()
    with CheckpointLocks(partition.owner.run_dir).of(fields[F_LOG_DIR], _SHORT_S):
        _lower(partition, checkpoints.CLEANER, offset, min(offset, fields[F_LOG_START]))
        fields[F_TRUNCATIONS] += 1
        partition.slot.publish(fields)
    values[F_TRUNCATIONS] = fields[F_TRUNCATIONS]


def _lower(partition: Partition, name: str, most: int, offset: int) -> None:
    """Set checkpoint `name` to `offset` if it is above `most`. The caller holds the lock."""
    if _line(partition, name) > most:
        folder = os.path.dirname(partition.directory)
        checkpoints.write_offsets(folder, name, {**_read(folder, name), _key(partition): offset})


def _key(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index


def _line(partition: Partition, name: str) -> int:
    """A partition's offset in checkpoint `name`, 0 without a line. Reads the file only after it was replaced.

    A change of leader may cut a thousand logs at once, and the file has a line for each log.
    """
    try:
        return _file(os.path.dirname(partition.directory), name).read().get(_key(partition), 0)
    except CheckpointError:  # no reader trusts it
        return 0


@cache
def _file(log_dir: str, name: str) -> OffsetFile:
    return OffsetFile(log_dir, name)


def _read(log_dir: str, name: str) -> checkpoints.Offsets:
    """The lines of the current file, to be written again."""
    try:
        return checkpoints.read_offsets(log_dir, name)
    except CheckpointError:
        return {}


def of_logs_here(log_dir: str, offsets: checkpoints.Offsets, known: Container[tuple[str, int]]) -> checkpoints.Offsets:
    """The lines of logs that are in `log_dir` but not among the `known` partitions. The caller holds the lock.

    A deleted log's directory is renamed before its line can apply to another log.
    """
    return {
        key: offset
        for key, offset in offsets.items()
        if key not in known and os.path.isdir(os.path.join(log_dir, names.partition_dir(*key)))
    }


class DeletedPartitionLines:
    """Removes checkpoint lines of deleted partitions before they are created again; used by the controller."""

    def __init__(self, log_dirs: Sequence[str], turns: CheckpointLocks) -> None:
        self._turns = turns
        self._files = [[OffsetFile(folder, name) for name in OFFSET_CHECKPOINTS] for folder in log_dirs]

    def forget(self, topic: str, partition: int, number: int) -> None:
        """Remove a partition's lines from the files in log directory `number`. Raises the disk's OSError."""
        with self._turns.of(number):
            for file in self._files[number]:
                _forget(file, (topic, partition))


def _forget(file: OffsetFile, key: tuple[str, int]) -> None:
    try:
        offsets = file.read()
    except CheckpointError:  # no reader trusts it
        return
    if key in offsets:
        log.info(
            "%s-%d was recreated: %s named offset %d of its former log, which is dropped", *key, file.name, offsets[key]
        )
        checkpoints.write_offsets(file.log_dir, file.name, {one: at for one, at in offsets.items() if one != key})
