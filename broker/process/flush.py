"""Syncs partitions' logs in processes that may wait for the disk (`storage.log.flush` has the rules)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.ipc import renewal
from odradek.ipc.slots import Fields, SlotState
from odradek.storage.log.flush import Flush, log_end
from odradek.storage.log.partition import LockNotAvailable, Partition

_TRIES = 100
_PAUSE_S = 0.001


@contextmanager
def patiently(partition: Partition) -> Iterator[Fields]:
    """`partition.locked()` for callers that may wait a tenth of a second.

    Raises LockNotAvailable after that, or PartitionRemoved.
    """
    for _ in range(_TRIES):
        try:
            values = partition.acquire()
            break
        except LockNotAvailable:
            time.sleep(_PAUSE_S)
    else:
        raise LockNotAvailable
    try:
        with renewal.of(partition.slot):
            yield values
    finally:
        partition.release()


def publish(one: Flush) -> None:
    """Publish in the slot that the files of `one` are synced.

    Raises OSError if the sync failed, LockNotAvailable, PartitionRemoved.
    """
    with patiently(one.partition) as values:
        one.publish(values)


def sync(partition: Partition, upto: Callable[[SlotState], int] = log_end) -> bool:
    """Sync a log up to the offset that `upto` picks from its state; whether there was anything to sync.

    Raises OSError when the disk fails (then its data cannot be trusted), LockNotAvailable, PartitionRemoved."""
    one = Flush.begin(partition, upto)
    if one.paths:
        one.sync()
        publish(one)
    return bool(one.paths)
