"""Records of magic 0 and 1, read one by one: few logs still have them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from odradek.pipeline.selection import OldSet
from odradek.pipeline.types import Range
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import INVALID_RECORD, RecordError

MAGIC_AT, ATTRIBUTES_AT = 16, 17
NO_TIMESTAMP_TYPE = -1


class Rows(NamedTuple):
    """Columns of a few records; `times` in ms."""

    offsets: list[int]
    times: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    time_type: int


def rows(found: OldSet, range: Range, most: int, check_crcs: bool = True) -> Iterator[Rows]:
    """The records of `found` within `range`, `most` at once; RecordError for what is damaged."""
    records = _rising(message_sets.iterate(found.data, check_crc=check_crcs), found.after)
    wanted = (record for record in records if range.start <= record[0] < range.end)
    kind = _time_type(found.data)
    while part := list(islice(wanted, most)):
        offsets, times, keys, values, _ = map(list, zip(*part, strict=True))
        yield Rows(offsets, times, keys, values, kind)


def _rising(records: Iterator[Record], last: int) -> Iterator[Record]:
    """The same; the checksum of a message leaves out its offset."""
    for record in records:
        if record[0] <= last:
            raise RecordError(INVALID_RECORD, f"offset {record[0]} comes after {last}")
        last = record[0]
        yield record


def _time_type(message: memoryview) -> int:
    """Kafka's number for what the timestamps are."""
    if message[MAGIC_AT] == 0:
        return NO_TIMESTAMP_TYPE
    appended = message[ATTRIBUTES_AT] & batch_v2.TIMESTAMP_TYPE
    return batch_v2.LOG_APPEND_TIME if appended else batch_v2.CREATE_TIME
