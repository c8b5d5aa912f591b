"""The leader epochs of a partition for processes without its lock: a leader's worker, a follower's replicator.

This reads the file as it is. A file that is broken, or has lost epochs that the slot says were noted, is rebuilt under
the lock (storage.log.roll), as each change of it would do: a leader has no other source to find where its followers
diverge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import roll
from odradek.storage.log.partition import LockNotAvailable, PartitionRemoved
from odradek.storage.segment.epochs import EpochCache

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition


def read(partition: Partition, noted: int) -> EpochCache:
    """The epochs; `noted` is the newest in the slot. CheckpointError while another process has the lock; OSError."""
    try:
        return EpochCache.read_noted(partition.directory, noted)
    except CheckpointError as problem:
        try:
            with partition.locked():
                return roll.read_epochs(partition)
        except (LockNotAvailable, PartitionRemoved):
            raise problem from None
