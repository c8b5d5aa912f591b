"""The timestamp of the record at an offset, in a batch or a message of any format.

With `message.timestamp.type=LogAppendTime` that is the time of the append, else the time that the producer has set.
"""

from __future__ import annotations

from odradek.protocol.batch import LEAST_LENGTH, LENGTH_AT, LOG_OVERHEAD, MAGIC_AT
from odradek.protocol.records import batch_v2, message_sets


def first_entry(data: bytes) -> bytes:
    """The first batch, or message below magic 2, of what a Fetch returns; empty if it is not whole."""
    size = int.from_bytes(data[LENGTH_AT:LOG_OVERHEAD]) + LOG_OVERHEAD
    return data[:size] if LOG_OVERHEAD + LEAST_LENGTH[0] <= size <= len(data) else b""


def timestamp_at(batch: bytes, offset: int) -> int:
    """The timestamp of the first record of `batch` from `offset` on, in ms since 1970; -1 where it has none.

    Where compaction has removed that record, the batch's highest timestamp. RecordError for a damaged batch."""
    if batch[MAGIC_AT] < 2:
        return next((one[1] for one in message_sets.iterate(batch) if one[0] >= offset), -1)
    head = batch_v2.header(batch)  # its base timestamp may be a delete horizon (KIP-534)
    if head.timestamp_type == batch_v2.LOG_APPEND_TIME:
        return head.max_timestamp
    return next((one[1] for one in batch_v2.iterate(batch) if one[0] >= offset), head.max_timestamp)
