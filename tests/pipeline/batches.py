"""Logs for the tests of Arrow columns. Each log also keeps the records that a reader must find in it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from odradek.pipeline.types import Chunk, Range
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records import batch_v2, codecs, control, message_sets, slices
from odradek.protocol.records.batch_v2 import Headers, Record

TOPIC, PARTITION = "häuser", 7
NOW = 1_700_000_000_000

Content = tuple[int, bytes | None, bytes | None, Headers]
"""A record without its offset."""


class Row(NamedTuple):
    """A record as Spark shows it; `time` in ms, `headers` None for a record without headers."""

    key: bytes | None
    value: bytes | None
    offset: int
    time: int
    time_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class Part(NamedTuple):
    """One batch (or message), its records, and the transaction that it belongs to."""

    data: bytes
    first: int
    last: int
    rows: list[Row]
    transaction: int | None = None  # index into Log.transactions


@dataclass
class Transaction:
    producer: int
    first: int
    marker: int = -1
    aborted: bool = False


@dataclass
class Log:
    """Consecutive batches; the next one begins at `next_offset`."""

    next_offset: int = 0
    parts: list[Part] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    _open: dict[int, int] = field(default_factory=dict)

    def batch(
        self, records: Sequence[Content], codec: int = 0, appended: int | None = None, producer: int = -1, **more: Any
    ) -> None:
        """Append `records` (time, key, value, headers) as a batch.

        `appended` is its LogAppendTime; with `producer` it is part of a transaction. `kept`: indexes of records that
        compaction keeps; `gap`: offsets between two records.
        """
        gap, kept = more.pop("gap", 0), more.pop("kept", None)
        rows = [(self.next_offset + i * (gap + 1), *record) for i, record in enumerate(records)]
        options: dict[str, int] = {"codec": codec}
        if appended is not None:
            options |= {"timestamp_type": batch_v2.LOG_APPEND_TIME, "append_time": appended}
        if producer != -1:
            options |= {"producer_id": producer, "producer_epoch": 0, "attributes": TRANSACTIONAL}
        data = batch_v2.build(rows, **options)
        if kept is not None:
            data, rows = _compacted(data, kept), [rows[i] for i in kept]
        self._add(data, rows[0][0] if rows else self.next_offset, batch_v2.header(data).last_offset, rows, producer)

    def message_set(self, records: Sequence[Content], magic: int, codec: int = 0, appended: int | None = None) -> None:
        rows = [(self.next_offset + i, *record[:3], ()) for i, record in enumerate(records)]
        kind = 0 if appended is None else 1
        data = message_sets.build(rows, magic, codec=codec, timestamp_type=kind, append_time=appended or 0)
        times = [-1 if magic == 0 else row[1] if appended is None else appended for row in rows]
        shown = [
            Row(row[2], row[3], row[0], time, -1 if magic == 0 else kind, None)
            for row, time in zip(rows, times, strict=True)
        ]
        self.parts.append(Part(data, rows[0][0], rows[-1][0], shown))
        self.next_offset = rows[-1][0] + 1

    def end(self, producer: int, abort: bool, emptied: bool = False) -> None:
        """The marker that ends the producer's transaction."""
        kind = control.ABORT if abort else control.COMMIT
        data = control.end_marker(
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=3,
            timestamp=NOW,
            base_offset=self.next_offset,
        )
        if producer in self._open:
            transaction = self.transactions[self._open.pop(producer)]
            transaction.marker, transaction.aborted = self.next_offset, abort
        if emptied:
            data = slices.emptied(batch_v2.header(data))
        self.parts.append(Part(data, self.next_offset, self.next_offset, []))
        self.next_offset += 1

    def _add(self, data: bytes, first: int, last: int, rows: list[Record], producer: int) -> None:
        head, transaction = batch_v2.header(data), None
        if producer != -1:
            if producer not in self._open:
                self._open[producer] = len(self.transactions)
                self.transactions.append(Transaction(producer, self.next_offset))
            transaction = self._open[producer]
        shown = [_row(row, head) for row in rows]
        self.parts.append(Part(data, first, last, shown, transaction))
        self.next_offset = last + 1

    def rows(self, start: int, end: int, committed: bool) -> list[Row]:
        """The records that a reader of [start, end) must return."""
        return [
            row
            for part in self.parts
            if not (committed and part.transaction is not None and self.transactions[part.transaction].aborted)
            for row in part.rows
            if start <= row.offset < end
        ]

    def chunks(self, sizes: Iterable[int], committed: bool) -> Iterator[Chunk]:
        """The log in chunks of `sizes` batches and one for the rest, with aborted transactions as a fetch has them."""
        left = list(self.parts)
        for size in [*sizes, len(self.parts)]:
            some, left = left[:size], left[size:]
            if some:
                first, last = some[0].first, some[-1].last
                aborted = self._aborted(first, last) if committed else ()
                yield Chunk(memoryview(b"".join(part.data for part in some)), aborted, last + 1)

    def _aborted(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        found = [t for t in self.transactions if t.aborted and t.first <= last and t.marker >= first]
        return tuple((t.producer, t.first) for t in found)


def _row(row: Record, head: batch_v2.Header) -> Row:
    offset, time, key, value, headers = row
    if head.timestamp_type:
        time = head.max_timestamp
    pairs = tuple((bytes(k).decode(errors="replace"), v) for k, v in headers) or None
    return Row(key, value, offset, time, head.timestamp_type, pairs)


def _compacted(data: bytes, kept: Sequence[int]) -> bytes:
    head = batch_v2.header(data)
    if not kept:
        return slices.emptied(head)
    body = batch_v2.payload(data)
    all_of_them = list(slices.slices(body, head))
    return slices.with_records(head, body, [all_of_them[i] for i in kept])


def shown(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The rows of record batches. Arrow validates every batch."""
    out = []
    for batch in batches:
        batch.validate(full=True)
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        rest = batch.drop_columns(["timestamp"]).to_pylist()
        for time, row in zip(times, rest, strict=True):
            assert row["topic"] == TOPIC and row["partition"] == PARTITION
            pairs = row.get("headers")
            out.append(
                Row(
                    row["key"],
                    row["value"],
                    row["offset"],
                    _ms(time),
                    row["timestampType"],
                    None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs),
                )
            )
    return out


def _ms(micros: int) -> int:
    assert micros % 1000 == 0
    return micros // 1000


def whole(log: Log) -> Range:
    return Range(TOPIC, PARTITION, 0, log.next_offset)


def some_records(rnd: random.Random, count: int, longest: int = 300) -> list[Content]:
    """Random (time, key, value, headers): null, empty and long ones."""

    def blob() -> bytes | None:
        return None if rnd.random() < 0.2 else rnd.randbytes(rnd.choice((0, 5, 60, 70, rnd.randrange(longest))))

    names = (b"h", b"", "ключ".encode(), b"h", b"\xff\xfe")
    return [
        (
            NOW + rnd.randrange(-(10**6), 10**6) if rnd.random() < 0.9 else -1,
            blob(),
            blob(),
            [(rnd.choice(names), blob()) for _ in range(rnd.choice((0, 0, 0, 1, 2, 5)))],
        )
        for _ in range(count)
    ]


def some_log(seed: int, batches: int, longest: int = 300) -> Log:
    """A log with interleaved transactions of three producers, all formats and codecs, and gaps."""
    rnd, log = random.Random(seed), Log(next_offset=random.Random(seed).choice((0, 5, 1 << 40)))
    for _ in range(batches):
        kind = rnd.random()
        records = some_records(rnd, rnd.choice((1, 2, 3, 10, 40)), longest)
        appended = rnd.choice((None, None, NOW + 5))
        if kind < 0.1:
            log.message_set(records, rnd.randrange(2), rnd.randrange(4), None if rnd.random() < 0.5 else NOW)
        elif kind < 0.25:
            log.end(rnd.randrange(1, 4), rnd.random() < 0.5)
        elif kind < 0.35:
            kept = [i for i in range(len(records)) if rnd.random() < 0.3]
            log.batch(records, rnd.randrange(5), appended, kept=kept, gap=rnd.randrange(3))
        elif kind < 0.6:
            log.batch(records, rnd.randrange(5), appended, producer=rnd.randrange(1, 4))
        else:
            log.batch(records, rnd.randrange(5), appended, gap=rnd.choice((0, 0, 300)))
    for producer in (1, 2, 3):
        log.end(producer, rnd.random() < 0.5)
    return log


CODECS = list(codecs.NAMES)
