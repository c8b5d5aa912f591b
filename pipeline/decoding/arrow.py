"""Decode chunks of a log to Arrow record batches with the columns of Spark's Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from odradek.pipeline.decoding import columns, gather, headers, old_formats
from odradek.pipeline.decoding.alike import Records
from odradek.pipeline.decoding.bodies import ENOUGH, Bodies, BrokenBatch, Unpacker
from odradek.pipeline.decoding.gather import fixed
from odradek.pipeline.decoding.selection import Batches, OldMessages, Selection, damaged
from odradek.pipeline.types import Chunk, Range
from odradek.protocol.records.errors import RecordError

log = logging.getLogger(__name__)

ROWS = 50_000
LARGE = 2 << 20
"""Bytes of a record batch above which merging is not worth the copy."""

_VIEWS = pa.binary_view()
_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", headers.TYPE))


def batches(
    chunks: Iterable[Chunk],
    range: Range,
    names: Sequence[str] = tuple(SCHEMA.names),
    rows: int = ROWS,
    check_crcs: bool = True,
    views: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of `range` in `chunks`, which are consecutive, without control records and aborted ones.

    `names` are the columns, in this order, of SCHEMA_WITH_HEADERS; the others are not decoded.
    Each record batch has at most `rows` records and 16 MiB of them, or one record; small ones are merged up to LARGE.
    With `views` keys and values are `binary_view`, of the memory of chunks, which must not be used again.
    PipelineError for a damaged batch, with its offset; earlier records may have been yielded or not.
    """
    return _merged(_Reader(range, names, rows, check_crcs, views).pieces(chunks), rows)


def schema(names: Sequence[str], views: bool = False) -> pa.Schema:
    """Of what `batches` yields."""
    fields = (SCHEMA_WITH_HEADERS.field(name) for name in names)
    return pa.schema([field.with_type(_VIEWS) if views and field.type == pa.binary() else field for field in fields])


class _Reader:
    """Record batches of one range, before merging."""

    def __init__(self, range: Range, names: Sequence[str], rows: int, check_crcs: bool, views: bool) -> None:
        self._range, self._names, self._rows, self._check_crcs = range, names, rows, check_crcs
        self._schema = schema(names, views)
        self._unpacker = Unpacker(kept=views)
        self._bytes, self._gathered = (_VIEWS, gather.views) if views else (pa.binary(), gather.binary)

    def pieces(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        selection = Selection(self._range, self._check_crcs)
        for chunk in chunks:
            for found in selection.of(chunk):
                try:
                    yield from self._of_messages(found) if isinstance(found, OldMessages) else self._of_batches(found)
                except BrokenBatch as error:
                    raise damaged(self._range, error.offset, error) from error

    def _of_batches(self, found: Batches) -> Iterator[pa.RecordBatch]:
        for bodies in self._unpacker.of(found, self._rows):
            for records in self._records(bodies):
                for piece in _cut(self._within(records)):
                    yield self._piece(piece)

    def _records(self, bodies: Bodies) -> Iterator[Records]:
        try:
            yield from columns.records(bodies, self._rows)
        except RecordError as error:
            first = _culprit(len(bodies.heads), lambda part: list(columns.records(bodies.only(part), self._rows)))
            raise damaged(self._range, int(bodies.heads["base_offset"][first]), error) from error

    def _within(self, records: Records) -> Records:
        offsets, start, end = records.offsets, self._range.start, self._range.end
        if offsets.size and offsets.min() >= start and offsets.max() < end:
            return records
        return records.only((offsets >= start) & (offsets < end))

    def _piece(self, records: Records) -> pa.RecordBatch:
        return self._batch(
            len(records.offsets),
            key=lambda: self._gathered(records.data, records.keys, records.key_sizes),
            value=lambda: self._gathered(records.data, records.values, records.value_sizes),
            offset=lambda: fixed(records.offsets, pa.int64()),
            timestamp=lambda: self._times(records.offsets, records.times),
            timestampType=lambda: fixed(records.time_types, pa.int32()),
            headers=lambda: self._headers(records),
        )

    def _times(self, offsets: np.ndarray, times: np.ndarray) -> pa.Array:
        """Times that µs cannot hold become the nearest that they can: for example nanoseconds written as ms."""
        shown, far = columns.micros(times)
        if far.size:
            log.warning(
                "%s-%d: of offsets %d to %d %d records have timestamps that µs cannot hold, the first, of offset %d,"
                " %d ms: they get the nearest that µs can",
                *self._range.key, offsets[0], offsets[-1], far.size, offsets[far[0]], times[far[0]],
            )  # fmt: skip
        return fixed(shown, _TIME)

    def _headers(self, records: Records) -> pa.Array:
        try:
            return headers.column(records)
        except RecordError as error:
            first = _culprit(len(records.offsets), lambda part: headers.column(records.only(part)))
            raise damaged(self._range, int(records.offsets[first]), error) from error

    def _of_messages(self, found: OldMessages) -> Iterator[pa.RecordBatch]:
        for part in old_formats.rows(found, self._range, self._rows, self._check_crcs):
            yield self._of_part(part)

    def _of_part(self, part: old_formats.Rows) -> pa.RecordBatch:
        return self._batch(
            len(part.offsets),
            key=lambda: pa.array(part.keys, self._bytes),
            value=lambda: pa.array(part.values, self._bytes),
            offset=lambda: pa.array(part.offsets, pa.int64()),
            timestamp=lambda: self._times(np.array(part.offsets), np.array(part.times, np.int64)),
            timestampType=lambda: pa.array(part.time_types, pa.int32()),
            headers=lambda: pa.nulls(len(part.offsets), headers.TYPE),
        )

    def _batch(self, rows: int, **make: Callable[[], pa.Array]) -> pa.RecordBatch:
        make |= {
            "topic": lambda: pa.repeat(pa.scalar(self._range.topic, pa.string()), rows),
            "partition": lambda: fixed(np.full(rows, self._range.partition, np.int32), pa.int32()),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self._names], schema=self._schema)


def _cut(records: Records) -> Iterator[Records]:
    """Pieces that span at most ENOUGH bytes, or hold one record."""
    first, count = 0, len(records.starts)
    while first < count:
        last = max(first + 1, int(np.searchsorted(records.ends, records.starts[first] + ENOUGH, "right")))
        yield records if last - first == count else records.only(slice(first, last))
        first = last


def _culprit(count: int, look: Callable[[slice], object]) -> int:
    """The first of `count` items for which `look` raises RecordError for any slice that has it, by binary search."""
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            look(slice(good, middle))
            good = middle
        except RecordError:
            bad = middle
    return good


def _merged(pieces: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Merge small neighbours while the result stays within `rows` and LARGE bytes."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for piece in pieces:
        if waiting and (count + piece.num_rows > rows or size + piece.nbytes > LARGE):
            yield _joined(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(piece)
        count, size = count + piece.num_rows, size + piece.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
