"""Writes Kafka's offset checkpoints of every log directory from the partitions' slots.

A file is written only when it changes. A recovery point may be behind the flushed offset but not ahead of it: the
writer reads slots before it writes the file, and `flushed` only grows while a log is not truncated. The replicator,
which truncates, lowers a recovery point before it appends again (broker.process.checkpoint_lock); the janitor does so
soon after it, too.

A log that is here but not in the metadata keeps its lines, as in Kafka, which finds logs by their directories: there
may be no metadata yet, or its topic's node in ZooKeeper may be invalid. The log may be opened later.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import contextmanager

from odradek.broker.process import checkpoint_lock
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.partitions import Partitions
from odradek.ipc import slots
from odradek.ipc.slots import SlotState
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import OffsetFile, Offsets
from odradek.storage.log.partition import LockNotAvailable, Partition

log = logging.getLogger(__name__)

_KNOWN = (slots.LEADER, slots.FOLLOWER)
_SILENT = (slots.RECOVERING, slots.OFFLINE)  # such a slot has no offsets yet: its former lines are kept
PICK: dict[str, Callable[[SlotState], int]] = {
    checkpoints.RECOVERY_POINT: lambda state: state.flushed,
    checkpoints.HIGH_WATERMARK: lambda state: state.hw,
    checkpoints.LOG_START: lambda state: state.log_start,
}

Line = tuple[int, int]  # incarnation, offset
_UNKNOWN = -1  # the incarnation of a log without a slot


class CheckpointWriter:
    """The checkpoint files of all log directories."""

    def __init__(self, log_dirs: Sequence[str], turns: CheckpointLocks, timeout_s: float = math.inf) -> None:
        """`timeout_s`: how long to wait for another writer of a log directory's checkpoints."""
        self._log_dirs = log_dirs
        self._timeout_s = timeout_s
        self._turns = turns
        self._files = {(i, name): OffsetFile(path, name) for i, path in enumerate(log_dirs) for name in PICK}
        self._written: dict[tuple[int, str], dict[tuple[str, int], Line]] = {}

    def write(self, partitions: Partitions, name: str, broken: Collection[int] = ()) -> dict[int, OSError]:
        """Write checkpoint `name` in each log directory where it differs, but not in the `broken` ones.

        Returns the error by directory where the disk failed or another process writes: the next call tries again.
        """
        by_dir: list[list[Partition]] = [[] for _ in self._log_dirs]
        known = set()
        for partition in partitions:
            by_dir[partition.state().log_dir].append(partition)
            known.add((partition.topic, partition.index))
        failed = {}
        for index, members in enumerate(by_dir):
            try:
                if index not in broken:
                    self._write(index, name, members, known)
            except OSError as error:
                log.error("%s: cannot write %s: %s", self._log_dirs[index], name, error)
                failed[index] = error
        return failed

    def _write(self, index: int, name: str, members: Sequence[Partition], known: Set[tuple[str, int]]) -> None:
        """Reads the slots while it holds the lock: see broker.process.checkpoint_lock."""
        with self._turn(index):
            lines = self._unnamed(index, name, known)
            for partition in members:
                state = partition.state()
                if state.incarnation == partition.incarnation and state.log_dir == index:
                    self._enter(lines, partition, state, name)
            if lines != self._written.get((index, name)):
                offsets = {key: offset for key, (_, offset) in lines.items()}
                checkpoints.write_offsets(self._log_dirs[index], name, offsets)
                self._written[index, name] = lines

    def _unnamed(self, index: int, name: str, known: Set[tuple[str, int]]) -> dict[tuple[str, int], Line]:
        """The lines of logs that are not in the metadata. Reads the file only when there may be such lines."""
        written = self._written.get((index, name))
        if written is not None and written.keys() <= known:
            return {}
        here = checkpoint_lock.of_logs_here(self._log_dirs[index], self._former(index, name), known)
        return {key: (_UNKNOWN, offset) for key, offset in here.items()}

    @contextmanager
    def _turn(self, index: int) -> Iterator[None]:
        try:
            with self._turns.of(index, self._timeout_s):
                yield
        except LockNotAvailable:
            raise OSError(errno.EBUSY, "another process is writing") from None

    def _enter(self, lines: dict[tuple[str, int], Line], partition: Partition, state: SlotState, name: str) -> None:
        key = (partition.topic, partition.index)
        if state.state in _KNOWN:
            offset = PICK[name](state)
            if offset or name != checkpoints.LOG_START:  # as in Kafka, a log start of 0 needs no line
                lines[key] = state.incarnation, offset
        elif state.state in _SILENT:
            former = self._former(state.log_dir, name)
            if key in former:
                lines[key] = state.incarnation, former[key]

    def _former(self, index: int, name: str) -> Offsets:
        """Raises the disk's OSError: a process out of descriptors must not write a file without these lines."""
        try:
            return self._files[index, name].read()
        except checkpoints.CheckpointError:
            return {}
