"""Caches epoch checkpoints until the partition's slot shows a change.

Every fetch of a follower looks up its last fetched epoch; reading a file for that costs too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from odradek.ipc.slots import F_GENERATION, F_LATEST_EPOCH, F_LOG_START, F_TRUNCATIONS
from odradek.storage.log import known_epochs

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.storage.segment.epochs import EpochCache

_Key = tuple[int, int, int, int]


class EpochCaches:
    """The epoch caches of one process, by partition."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Partition, tuple[_Key, EpochCache]] = WeakKeyDictionary()

    def get(self, partition: Partition, values: tuple[int, ...]) -> EpochCache:
        """The partition's epochs. Raises CheckpointError or OSError when the file cannot be read."""
        key = values[F_LATEST_EPOCH], values[F_TRUNCATIONS], values[F_LOG_START], values[F_GENERATION]
        known = self._known.get(partition)
        if known is None or known[0] != key:
            known = self._known[partition] = (key, known_epochs.read(partition, values[F_LATEST_EPOCH]))
        return known[1]
