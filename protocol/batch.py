"""The header of a record batch of magic 2, all that the hot path ever looks at.

Layout (Kafka's DefaultRecordBatch): base offset i64, length i32, leader epoch i32, magic i8, CRC-32C u32 over all
that follows, attributes i16, last offset delta i32, first and max timestamp i64, producer id i64, epoch i16,
first sequence i32, record count i32. Base offset and leader epoch lie outside the CRC: the broker sets them in place.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
LOG_OVERHEAD = 12
PLACE = struct.Struct(">qii")  # what the broker sets: base offset, length (unchanged), leader epoch
CRC_START = 21

COMPRESSION = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NO_TIMESTAMP = -1


def next_sequence(sequence: int) -> int:
    """The sequence after `sequence`; 31 bits, wrapping to 0 (KIP-98)."""
    return 0 if sequence == 0x7FFFFFFF else sequence + 1


def last_sequence(first: int, count: int) -> int:
    """The last sequence of a batch of `count` records that begins with `first`."""
    last = first + count - 1
    return last if last <= 0x7FFFFFFF else last - 0x80000000
