"""A partition's leader epochs as those who lead or follow it here tell them to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage.log import known_epochs

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.storage.segment.epochs import EpochCache


def of(partition: Partition, values: tuple[int, ...]) -> EpochCache:
    """The epochs, that of the present leader among them, though it is noted with its first batch where one broker is
    alone: it begins at the log end. The first begins at the log start, as in Kafka (LeaderEpochFileCache), though the
    file is only cut at recovery. Raises OSError, CheckpointError.
    """
    cache = known_epochs.read(partition, values[slots.F_EPOCH_NOTED])
    cache.truncate_from_start(values[slots.F_LOG_START])
    if values[slots.F_EPOCH_NOTED] < values[slots.F_LEADER_EPOCH]:
        cache.assign(values[slots.F_LEADER_EPOCH], values[slots.F_LEO])
    return cache
