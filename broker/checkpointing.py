"""Writing Kafka's offset checkpoints of every log directory from the partitions' slots.

Written only when something changed. A recovery point may lag behind the truth and not be ahead of it: slots are read
before the file is written, and `flushed` only grows while a log is not truncated. After a truncation the recovery
points are written at once, as Kafka does, or a power failure would have what came instead of it trusted unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from odradek.broker.partitions import Partitions
from odradek.ipc import slots
from odradek.ipc.slots import SlotState
from odradek.storage import checkpoints
from odradek.storage.checkpoints import Offsets
from odradek.storage.partition import Partition

log = logging.getLogger(__name__)

# A recovering or offline partition's slot says nothing yet: its former lines are kept.
_KNOWN = (slots.LEADER, slots.FOLLOWER)
PICK: dict[str, Callable[[SlotState], int]] = {
    checkpoints.RECOVERY_POINT: lambda state: state.flushed,
    checkpoints.HIGH_WATERMARK: lambda state: state.hw,
    checkpoints.LOG_START: lambda state: state.log_start,
}


class Checkpoints:
    """The checkpoint files of all log directories."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs = log_dirs
        self._written: dict[tuple[int, str], Offsets] = {}

    def write(self, partitions: Partitions, name: str, broken: Collection[int] = ()) -> dict[int, OSError]:
        """Write checkpoint `name` in each log directory where it differs, but not in the `broken` ones.

        Returns why it was not written where the disk refused it: the next call tries again.
        """
        found: list[Offsets] = [{} for _ in self._log_dirs]
        for partition in partitions:
            state = partition.state()
            if state.incarnation == partition.incarnation:
                self._enter(found[state.log_dir], partition, state, name)
        failed = {}
        for index, offsets in enumerate(found):
            try:
                if index not in broken and offsets != self._former(index, name):
                    checkpoints.write_offsets(self._log_dirs[index], name, offsets)
                    self._written[index, name] = offsets
            except OSError as error:
                log.error("%s: %s was not written: %s", self._log_dirs[index], name, error)
                failed[index] = error
        return failed

    def _enter(self, offsets: Offsets, partition: Partition, state: SlotState, name: str) -> None:
        key = (partition.topic, partition.index)
        if state.state in _KNOWN:
            offset = PICK[name](state)
            if offset or name != checkpoints.LOG_START:  # as in Kafka a log start of 0 goes without saying
                offsets[key] = offset
        elif key in self._former(state.log_dir, name):
            offsets[key] = self._former(state.log_dir, name)[key]

    def _former(self, index: int, name: str) -> Offsets:
        if (index, name) not in self._written:
            try:
                self._written[index, name] = checkpoints.read_offsets(self._log_dirs[index], name)
            except (checkpoints.CheckpointError, OSError):
                self._written[index, name] = {}
        return self._written[index, name]
