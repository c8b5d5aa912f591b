"""Writes the end marker of a transaction: a control batch of our own."""

from __future__ import annotations

from odradek.ipc.partition_counts import PRODUCE_REQUESTS
from odradek.protocol import errors
from odradek.protocol.records import control
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch, Marker
from odradek.storage.log.partition import Partition, PartitionRemoved


def write_marker(
    partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool, now_ms: int,
    only_open: bool = False,
) -> int:  # fmt: skip
    """End the producer's transaction in this partition; returns Kafka's error code.

    LockNotAvailable: another process holds the partition's lock.

    `only_open`: the sender may not be a coordinator. The marker must end an open transaction of exactly this epoch, and
    its coordinator epoch must not exceed that of the last marker: the real coordinator's next markers would be refused
    for ever.
    """
    kind = control.COMMIT if commit else control.ABORT
    data = control.end_marker(
        kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=now_ms
    )
    batch = Batch(memoryview(bytearray(data)), 1, now_ms, producer_id, epoch)
    batch.marker = Marker(commit, coordinator_epoch, only_open)
    try:
        with partition.locked() as values:
            partition.counts[PRODUCE_REQUESTS] += 1
            append(partition, values, [batch], now_ms)
    except PartitionRemoved:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    except OSError:
        return errors.KAFKA_STORAGE_ERROR
    return batch.error
