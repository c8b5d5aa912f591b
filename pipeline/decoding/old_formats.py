"""Records of magic 0 and 1, decoded one by one because few logs still have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.pipeline.decoding.bodies import ENOUGH, BrokenBatch
from odradek.pipeline.decoding.selection import OldMessages
from odradek.pipeline.types import Range
from odradek.protocol.batch import MAGIC_AT, OLD_ATTRIBUTES_AT, TIMESTAMP_TYPE
from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

NO_TIMESTAMP_TYPE = -1


class Rows(NamedTuple):
    """Columns of a few records; `times` in ms."""

    offsets: list[int]
    times: list[int]
    time_types: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]

    def add(self, record: Record, time_type: int) -> None:
        offset, time, key, value, _ = record
        self.offsets.append(offset)
        self.times.append(time)
        self.time_types.append(time_type)
        self.keys.append(key)
        self.values.append(value)


def rows(found: OldMessages, range: Range, most: int, check_crcs: bool = True) -> Iterator[Rows]:
    """The records of `found` within `range`, at most `most` and about ENOUGH bytes at once; raises BrokenBatch."""
    part, size = Rows([], [], [], [], []), 0
    for record, time_type in _records(found, check_crcs):
        if not range.start <= record[0] < range.end:
            continue
        length = len(record[2] or b"") + len(record[3] or b"")
        if part.offsets and (len(part.offsets) == most or size + length > ENOUGH):
            yield part
            part, size = Rows([], [], [], [], []), 0
        part.add(record, time_type)
        size += length
    if part.offsets:
        yield part


def _records(found: OldMessages, check_crcs: bool) -> Iterator[tuple[Record, int]]:
    """Each record with its timestamp type. Offsets must rise: a message's checksum does not cover them."""
    last = found.after
    for message in found.messages:
        kind = _time_type(message)
        try:
            for record in message_sets.iterate(message, check_crc=check_crcs):
                if record[0] <= last:
                    raise RecordError(INVALID_RECORD, f"offset {record[0]} comes after {last}")
                last = record[0]
                yield record, kind
        except RecordError as error:
            raise BrokenBatch(int.from_bytes(message[:8], "big", signed=True), error) from error


def _time_type(message: memoryview) -> int:
    """Kafka's number for the timestamp type."""
    if message[MAGIC_AT] == 0:
        return NO_TIMESTAMP_TYPE
    appended = message[OLD_ATTRIBUTES_AT] & TIMESTAMP_TYPE
    return batch_v2.LOG_APPEND_TIME if appended else batch_v2.CREATE_TIME
