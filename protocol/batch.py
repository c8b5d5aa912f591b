"""The header of a record batch of magic 2, and the fields that older formats share with it: one place for its layout.

    base offset i64 | length i32 | leader epoch i32 | magic i8 | CRC-32C u32 | attributes i16 | last offset delta i32
    base timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | count i32

The length counts from the leader epoch on; the CRC covers attributes to the end, so that a leader can set base offset
and leader epoch in place. Messages of magic 0 and 1 have offset, length and magic at the same positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek.protocol.wire import INT32_MAX

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "num_records",
)  # fmt: skip
ENTRY = struct.Struct(">qi")  # base offset and length
LOG_OVERHEAD = ENTRY.size  # 12: bytes that the length does not count
TO_MAGIC = struct.Struct(">qiib")  # base offset, length, 4 bytes, magic: alike in every format
PLACE = struct.Struct(">qii")  # fields that the broker sets: base offset, length (unchanged), leader epoch

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT, COUNT_AT = 8, 16, 17, 21, 27, 35, 57
CRC_START = ATTRIBUTES_AT  # the CRC-32C covers everything from here on

OLD_CRC_START = MAGIC_AT  # likewise for the CRC-32 of magic 0 and 1
OLD_ATTRIBUTES_AT = 17
LEAST_LENGTH = (14, 22, HEADER_SIZE - LOG_OVERHEAD)  # of magic 0, 1 and 2

COMPRESSION = 0x07  # attribute bits
TIMESTAMP_TYPE = 0x08  # set: max timestamp is the broker's append time
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: base timestamp is the delete horizon

NO_TIMESTAMP = -1


def next_sequence(sequence: int) -> int:
    """The sequence after `sequence`; 31 bits, wrapping to 0 (KIP-98)."""
    return 0 if sequence == INT32_MAX else sequence + 1


def last_sequence(first: int, count: int) -> int:
    """The last sequence of a batch of `count` records that begins with `first`."""
    last = first + count - 1
    return last if last <= INT32_MAX else last - INT32_MAX - 1


def split(data: bytes) -> Iterator[bytes]:
    """The batches in a run of complete batches."""
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD
        yield data[position : position + size]
        position += size
