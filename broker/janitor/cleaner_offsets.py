"""The cleaner's checkpoint: how far each compacted log is clean.

Layout    : cleaner-offset-checkpoint of each log directory, Kafka's: the first offset of a log that is not clean.
            Lines of logs that are not in the metadata stay (see broker.process.checkpoint_writer).
Owner     : the janitor, the only process that compacts.
Crash rule: a checkpoint that is missing or behind only costs another compaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from odradek.broker.process.checkpoint_lock import CheckpointLocks, of_logs_here
from odradek.ipc.slots import SlotState
from odradek.storage.compaction.compaction import CleaningAborted
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import OffsetFile, Offsets
from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

Line = Callable[[SlotState], int]  # where the dirty part begins, by the slot as read under the lock


class CleanerOffsets:
    """The checkpoint files. An offset counts for one incarnation of a partition only."""

    def __init__(self, log_dirs: list[str], turns: CheckpointLocks) -> None:
        self._log_dirs = log_dirs
        self._turns = turns
        self._files = [OffsetFile(path, checkpoints.CLEANER) for path in log_dirs]
        self._truncations: dict[int, int] = {}  # how many are known of each incarnation
        self._cut: set[int] = set()  # incarnations that were truncated since they were cleaned

    def get(self, partition: Partition) -> int | None:
        """Where the dirty part of a log begins, None when it was never cleaned."""
        state, incarnation = partition.state(), partition.incarnation
        if state.incarnation != incarnation:  # the file's line is of another one
            return None
        if self._truncations.get(incarnation, 0) != state.truncations:
            self._truncations[incarnation] = state.truncations
            self._cut.add(incarnation)
        offset = self._read(state.log_dir).get((partition.topic, partition.index))
        # How far it was cut is no longer known: the records that came instead are not clean.
        return offset if offset is None or incarnation not in self._cut else 0

    def put_back(self, partition: Partition, others: Iterable[Partition]) -> None:
        """Mark a log whose line is beyond its end as dirty from its start on, as Kafka's cleaner does. Raises OSError.

        The file is damaged. The log may grow beyond the line: records up to there must not count as clean.
        """
        self._cut.add(partition.incarnation)
        self._write(partition.state().log_dir, [partition], _log_start, others)
        self._cut.discard(partition.incarnation)

    def put(self, partition: Partition, offset: int, truncations: int, others: Iterable[Partition]) -> None:
        """Write where the dirty part begins, for a log that had `truncations` when that was determined.

        Leaves out partitions that are not among `others`. Raises OSError, and CleaningAborted if there were more
        truncations. A truncated log stays dirty until the file says so: if the write fails, the old line is there.
        """

        def line(state: SlotState) -> int:
            if state.truncations != truncations:
                raise CleaningAborted("the log was truncated")
            return offset

        self._write(partition.state().log_dir, [partition], line, others)
        self._cut.discard(partition.incarnation)

    def begin(self, partitions: Iterable[Partition], others: Iterable[Partition]) -> list[tuple[Partition, OSError]]:
        """Add lines for logs that were never cleaned: they are dirty from their start on.

        Returns the disk errors, each with one log of its directory. The logs of other directories are added.
        """
        by_dir: dict[int, list[Partition]] = {}
        for partition in partitions:
            by_dir.setdefault(partition.state().log_dir, []).append(partition)
        refused, others = [], list(others)
        for index, new in by_dir.items():
            try:
                self._write(index, new, _log_start, others)
            except OSError as error:
                refused.append((new[0], error))
        return refused

    def record_truncations(self, partitions: Iterable[Partition], others: Callable[[], Iterable[Partition]]) -> None:
        """Record which cleaned logs are dirty because they were truncated, for the next start, which cannot know.

        Otherwise a record after the cut, whose key no pass has searched for older records, would count as clean; if it
        is a tombstone, a later pass would remove it, and the older records would reappear. A failed write is retried
        at the next call, and does not stop the other logs: raises the last OSError at the end.
        """
        refused: OSError | None = None
        for partition in partitions:
            if self.get(partition) is not None and partition.incarnation in self._cut:
                try:
                    self._write(partition.state().log_dir, [partition], _log_start, others())
                    self._cut.discard(partition.incarnation)
                except OSError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _write(self, index: int, new: Iterable[Partition], line: Line, others: Iterable[Partition]) -> None:
        """Reads the slots while it holds the lock: see broker.process.checkpoint_lock."""
        with self._turns.of(index):
            former, others = self._former(index), list(others)
            known = {(one.topic, one.index) for one in others if _is_live(one)}
            offsets = {key: offset for key, offset in former.items() if key in known}
            offsets |= of_logs_here(self._log_dirs[index], former, {(one.topic, one.index) for one in others})
            offsets |= {(one.topic, one.index): line(one.state()) for one in new if _is_live(one)}
            checkpoints.write_offsets(self._log_dirs[index], checkpoints.CLEANER, offsets)

    def _read(self, index: int) -> Offsets:
        try:
            return self._former(index)
        except OSError as error:
            log.warning("treating every compacted log as dirty: %s", error)
            return {}

    def _former(self, index: int) -> Offsets:
        """Raises the disk's OSError: then the existing file must not be replaced."""
        try:
            return self._files[index].read()
        except checkpoints.CheckpointError as error:
            log.warning("treating every compacted log as dirty: %s", error)
            return {}


def _log_start(state: SlotState) -> int:
    return state.log_start


def _is_live(partition: Partition) -> bool:
    return partition.state().serves(partition.incarnation)
