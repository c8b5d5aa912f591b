"""A partition's leader epochs as this broker, its leader or a follower, reports them to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage.log import known_epochs

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.storage.segment.epochs import EpochCache


def of(partition: Partition, values: tuple[int, ...]) -> EpochCache:
    """The epochs, including the current leader's: a broker that is alone records it only with its first batch; until
    then it begins at the log end. The first epoch begins at the log start, as in Kafka (LeaderEpochFileCache), although
    only recovery cuts the file. Raises OSError, CheckpointError.
    """
    cache = known_epochs.read(partition, values[slots.F_LATEST_EPOCH])
    cache.truncate_from_start(values[slots.F_LOG_START])
    if values[slots.F_LATEST_EPOCH] < values[slots.F_LEADER_EPOCH]:
        cache.assign(values[slots.F_LEADER_EPOCH], values[slots.F_LEO])
    return cache
