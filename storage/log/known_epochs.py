"""The leader epochs of a partition for who has not its lock: a leader's worker, a follower's replicator.

The file is read as it is. One that is broken, or has lost what the slot says was noted, is built again under the lock
(storage.log.roll), as each change of it would do: a leader has nothing else to tell its followers where they part from
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import roll
from odradek.storage.log.partition import Busy, Gone
from odradek.storage.segment.epochs import EpochCache

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition


def read(partition: Partition, noted: int) -> EpochCache:
    """The epochs, `noted` the newest by the slot. CheckpointError while another has the lock; OSError."""
    try:
        return EpochCache.read_noted(partition.directory, noted)
    except CheckpointError as problem:
        try:
            with partition.locked():
                return roll.read_epochs(partition)
        except (Busy, Gone):
            raise problem from None
