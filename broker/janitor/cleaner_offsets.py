"""How far each compacted log is clean.

Layout    : cleaner-offset-checkpoint of each log directory, Kafka's: the first offset of a log that is not clean.
            Lines of logs that the metadata does not name stay (see broker.process.checkpoint_writer).
Owner     : the janitor, which alone compacts.
Crash rule: a checkpoint that is missing or behind only costs another round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from odradek.broker.process.checkpoint_lock import CheckpointLocks, of_logs_here
from odradek.ipc.slots import SlotState
from odradek.storage.compaction.compaction import Moved
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import OffsetFile, Offsets
from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

Line = Callable[[SlotState], int]  # where the dirty part begins, by the slot as it is when it is our turn


class CleanerOffsets:
    """The checkpoint files. An offset counts for one incarnation of a partition only."""

    def __init__(self, log_dirs: list[str], turns: CheckpointLocks) -> None:
        self._log_dirs = log_dirs
        self._turns = turns
        self._files = [OffsetFile(path, checkpoints.CLEANER) for path in log_dirs]
        self._truncations: dict[int, int] = {}  # how many of each incarnation are known of
        self._cut: set[int] = set()  # incarnations that were truncated since they were cleaned

    def get(self, partition: Partition) -> int | None:
        """Where the dirty part of a log begins, None when it was never cleaned."""
        state, incarnation = partition.state(), partition.incarnation
        if state.incarnation != incarnation:  # what the file says is of another one
            return None
        if self._truncations.get(incarnation, 0) != state.truncations:
            self._truncations[incarnation] = state.truncations
            self._cut.add(incarnation)
        offset = self._read(state.log_dir).get((partition.topic, partition.index))
        # How far it was cut nobody knows any more: what came instead is not clean.
        return offset if offset is None or incarnation not in self._cut else 0

    def put_back(self, partition: Partition, others: Iterable[Partition]) -> None:
        """Have a log whose line lies beyond its end dirty from its start on, as Kafka's cleaner does. Raises OSError.

        The file is damaged. The log may grow to beyond the line: what it gets until then must not count as clean.
        """
        self._cut.add(partition.incarnation)
        self._write(partition.state().log_dir, [partition], _log_start, others)
        self._cut.discard(partition.incarnation)

    def put(self, partition: Partition, offset: int, truncations: int, others: Iterable[Partition]) -> None:
        """Write where the dirty part begins, of a log that had `truncations` when that was found out.

        Leaves out partitions that are none of the `others`. Raises OSError, and Moved if there were more truncations. A
        log that was cut stays dirty until the file says so: where the disk refuses it, the old line is still there.
        """

        def line(state: SlotState) -> int:
            if state.truncations != truncations:
                raise Moved("the log was truncated")
            return offset

        self._write(partition.state().log_dir, [partition], line, others)
        self._cut.discard(partition.incarnation)

    def begin(self, partitions: Iterable[Partition], others: Iterable[Partition]) -> list[tuple[Partition, OSError]]:
        """Enter logs that were never cleaned: they are dirty from their start on.

        Returns what the disk refused, with one of the logs of each directory that did. The others are entered.
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

    def note_truncations(self, partitions: Iterable[Partition], others: Callable[[], Iterable[Partition]]) -> None:
        """Write down which cleaned logs are dirty because they were cut, for a start that cannot know.

        Else a record behind the cut, of which no pass has looked for older ones of its key, would count as clean; were
        it a tombstone, it would go one day, and the older ones would be there again. What the disk refuses is tried
        again at the next call, and holds up no other log: raises the last OSError when all had their turn.
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
        """Slots are looked at when it is our turn: see broker.process.checkpoint_lock."""
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
        """OSError as the disk does: then nothing may be written in place of what is there."""
        try:
            return self._files[index].read()
        except checkpoints.CheckpointError as error:
            log.warning("treating every compacted log as dirty: %s", error)
            return {}


def _log_start(state: SlotState) -> int:
    return state.log_start


def _is_live(partition: Partition) -> bool:
    return partition.state().serves(partition.incarnation)
