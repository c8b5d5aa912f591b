"""The records that a consumer sees, read_committed or not, by markers and aborted transactions as in Kafka's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.ipc import slots
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records import batch_v2, convert
from odradek.storage.log import read, transactions
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producer_state import ABORT, parse_marker


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def view(partition: Partition, committed: bool, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Seen]:
    """All records from `offset` (the log start) on; `max_bytes` a fetch. Nothing else may change the files."""
    return [one for one in _records(partition, committed, offset, max_bytes) if offset is None or one.offset >= offset]


def stable(values: tuple[int, ...]) -> int:
    """The last stable offset."""
    return slots.last_stable(values)


def _records(partition: Partition, committed: bool, offset: int | None, max_bytes: int) -> Iterator[Seen]:
    values = partition.slot.read()
    start = values[slots.F_LOG_START]
    at = max(start, start if offset is None else offset)
    upto = stable(values) if committed else values[slots.F_HW]
    while at < upto:
        piece = read.fetch(partition, values, at, upto, max_bytes)
        if piece is None:
            return
        rows = transactions.aborted_between(partition, values, at, piece.following) if committed else []
        for one in _kept(piece.read(), rows):
            if one.offset >= at:
                yield one
        assert piece.following > at, "the reader does not advance"
        at = piece.following


def _kept(data: bytes, rows: list[tuple[int, int]]) -> Iterator[Seen]:
    """The records of one fetch, without those of the aborted transactions (producer id, first offset) of its answer."""
    coming, aborted = sorted(rows, key=lambda row: row[1]), set()
    for piece in convert.split(data):
        head = batch_v2.header(piece)
        assert batch_v2.crc_is_right(piece)
        while coming and coming[0][1] <= head.last_offset:
            aborted.add(coming.pop(0)[0])
        if head.is_control:
            if head.num_records and (parse_marker(bytes(piece)) or (-1, 0))[0] == ABORT:
                aborted.discard(head.producer_id)
        elif not (head.attributes & TRANSACTIONAL and head.producer_id in aborted):
            yield from (Seen(one[0], one[1], one[2], one[3], tuple(one[4])) for one in batch_v2.iterate(piece))
