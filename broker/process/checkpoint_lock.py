"""Who writes the offset checkpoints of a log directory: one process at a time, and nobody for a partition that is gone.

A line names a topic, not which one of that name. Were the line of a deleted topic there when one of the same name
begins, recovery would hold it against the new log: a log start behind its end removes the log, a high watermark shows
what is not committed, a recovery point spares a torn end the look. So the controller takes the lines out before it
makes a partition's directory, and the janitor, whose view may be older, must not bring them back.

Layout    : `checkpoint.lock` in the run directory, a byte for each log directory.
Owner     : the kernel, as of all locks (ipc.locks).
Writers   : who holds a directory's byte, and looks at the partitions' slots after it has taken it: a deleted one's
            says so before its name can be given away.
Crash rule: files are replaced whole; a dead holder's byte is free, a stopped one's when it was killed
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
from odradek.storage.log.partition import Busy, Partition

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.lock"
_PAUSE_S = 0.001
_SHORT_S = 0.01


class CheckpointLocks:
    """The locks as one process has them."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._locks = ByteLocks(Path(run_dir, FILE_NAME))

    @contextmanager
    def of(self, number: int, patience_s: float = math.inf) -> Iterator[None]:
        """While it is our turn in log directory `number`; waits for who is writing there, and so for its disk.

        Raises Busy after `patience_s`: of who holds a partition's lock, which must not wait for a disk unseen.
        """
        until = time.monotonic() + patience_s
        while not self._locks.try_lock(number):
            if time.monotonic() >= until:
                raise Busy
            time.sleep(_PAUSE_S)
        try:
            yield
        finally:
            self._locks.unlock(number)


def lower(partition: Partition, fields: Fields) -> None:
    """Have the checkpoints say at most what `fields` do for a partition that is about to be truncated; publish them.

    As Kafka does with the recovery point: else a power failure would have what came instead trusted unseen. And a log
    start behind the log's end would cost all that came instead at the next start. Rare, as what is truncated is mostly
    not synced yet. All in one turn, the checkpoints first: who dies between them has published nothing, so that its
    successor lowers all; and the janitor, which looks at the slot when it is its turn, brings no old line back once
    it is published. Caller holds the partition's lock, and so waits for nobody's sync: Busy where another writes.
    Its own four syncs renew the lock (storage.files.durable). OSError as the disk does.
    """
    with CheckpointLocks(partition.owner.run_dir).of(fields[F_LOG_DIR], _SHORT_S):
        _lower(partition, checkpoints.RECOVERY_POINT, fields[F_FLUSHED], fields[F_FLUSHED])
        _lower(partition, checkpoints.LOG_START, fields[F_LOG_START], fields[F_LOG_START])
        partition.slot.publish(fields)


def lower_cleaner_point(partition: Partition, values: Fields, offset: int) -> None:
    """Have the cleaner's checkpoint call nothing clean of a log that is about to be cut at `offset`.

    Unless it ends at or below that. The janitor writes the same once it has seen the cut, but a broker that dies first
    would take what came behind it for clean at its next start (see broker.janitor.cleaner_offsets). A round of the
    cleaner may be at its end just now: the cut is announced in the slot (`truncations`; `values` follow) in the same
    turn, so that it writes no line over this one. No round goes beyond the sealed segments: the usual cut, in the
    active one, needs no turn. Errors as above.
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
    """Where checkpoint `name` says more than `most`, have it say `offset`. It is our turn."""
    if _line(partition, name) > most:
        folder = os.path.dirname(partition.directory)
        checkpoints.write_offsets(folder, name, {**_read(folder, name), _key(partition): offset})


def _key(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index


def _line(partition: Partition, name: str) -> int:
    """What checkpoint `name` says of a partition, 0 without a line: its lines are read when there is another file.

    A thousand logs may be cut at once when their leader changes, and the file has a line for each log there is.
    """
    try:
        return _file(os.path.dirname(partition.directory), name).read().get(_key(partition), 0)
    except CheckpointError:  # nobody goes by it
        return 0


@cache
def _file(log_dir: str, name: str) -> OffsetFile:
    return OffsetFile(log_dir, name)


def _read(log_dir: str, name: str) -> checkpoints.Offsets:
    """The lines of the file that is there, to be written again."""
    try:
        return checkpoints.read_offsets(log_dir, name)
    except CheckpointError:
        return {}


def of_logs_here(log_dir: str, offsets: checkpoints.Offsets, known: Container[tuple[str, int]]) -> checkpoints.Offsets:
    """The lines of logs that are in `log_dir` and none of the `known` partitions. It is our turn there.

    A deleted log's directory has another name before its line can be another log's.
    """
    return {
        key: offset
        for key, offset in offsets.items()
        if key not in known and os.path.isdir(os.path.join(log_dir, names.partition_dir(*key)))
    }


class FormerLines:
    """What checkpoints still say of partitions that are to begin anew; the controller's."""

    def __init__(self, log_dirs: Sequence[str], turns: CheckpointLocks) -> None:
        self._turns = turns
        self._files = [[OffsetFile(folder, name) for name in OFFSET_CHECKPOINTS] for folder in log_dirs]

    def forget(self, topic: str, partition: int, number: int) -> None:
        """Take a partition's lines out of the files in log directory `number`. OSError as the disk does."""
        with self._turns.of(number):
            for file in self._files[number]:
                _forget(file, (topic, partition))


def _forget(file: OffsetFile, key: tuple[str, int]) -> None:
    try:
        offsets = file.read()
    except CheckpointError:  # nobody goes by it
        return
    if key in offsets:
        log.info(
            "%s-%d was recreated: %s named offset %d of its former log, which is dropped", *key, file.name, offsets[key]
        )
        checkpoints.write_offsets(file.log_dir, file.name, {one: at for one, at in offsets.items() if one != key})
