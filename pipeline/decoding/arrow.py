"""Decode chunks of a log to Arrow record batches with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from odradek.pipeline.decoding import columns, headers, old_formats
from odradek.pipeline.decoding.alike import Records
from odradek.pipeline.decoding.bodies import ENOUGH, Bodies, BrokenBatch, Unpacker
from odradek.pipeline.decoding.building import TIME, Building, culprit
from odradek.pipeline.decoding.selection import Batches, LargeBatches, OldMessages, Selection, damaged
from odradek.pipeline.decoding.tables import Tables
from odradek.pipeline.types import Chunk, Pace, Range
from odradek.protocol.records.errors import RecordError

ROWS = 50_000
LARGE = 2 << 20
"""Bytes of a record batch above which merging is not worth the copy."""

_VIEWS = pa.binary_view()
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
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
    pace: Pace | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `range` in `chunks`, which are consecutive, without control records and aborted ones.

    `names` are the columns, in this order, of SCHEMA_WITH_HEADERS; the others are not decoded.
    Each record batch has at most `rows` records, and about ROOM bytes of keys, values and headers, or what was found at
    once: 16 MiB of records, or one record. Small ones are merged up to LARGE. With `views` keys and values are
    `binary_view`, of the memory of chunks, which must not be used again; then ROOM is for the memory that they keep,
    and nothing is merged. `pace` tells the reader of chunks what suits the records.
    PipelineError for a damaged batch, with its offset; earlier records may have been yielded or not.
    """
    pieces = _Reader(range, names, rows, check_crcs, views, pace or Pace()).pieces(chunks)
    return pieces if views else _merged(pieces, rows)


def schema(names: Sequence[str], views: bool = False) -> pa.Schema:
    """Of what `batches` yields."""
    fields = (SCHEMA_WITH_HEADERS.field(name) for name in names)
    return pa.schema([field.with_type(_VIEWS) if views and field.type == pa.binary() else field for field in fields])


class _Reader:
    """Record batches of one range, before merging."""

    def __init__(
        self, range: Range, names: Sequence[str], rows: int, check_crcs: bool, views: bool, pace: Pace
    ) -> None:
        self._range, self._rows, self._check_crcs, self._pace = range, rows, check_crcs, pace
        self._selection = Selection(range, check_crcs)
        self._unpacker = Unpacker(kept=views)
        self._tables = Tables(range, rows)
        self._building = Building(range, schema(names, views), rows)

    def pieces(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            yield from self._building.hold(len(chunk.data))
            for found in self._selection.of(chunk):
                try:
                    yield from self._of(found)
                except BrokenBatch as error:
                    raise damaged(self._range, error.offset, error) from error
        yield from self._building.rest()

    def _of(self, found: Batches | LargeBatches | OldMessages) -> Iterator[pa.RecordBatch]:
        if isinstance(found, OldMessages):
            return self._of_messages(found)
        if isinstance(found, Batches):
            return self._of_batches(found)
        return self._of_large(found)

    def _of_large(self, found: LargeBatches) -> Iterator[pa.RecordBatch]:
        """One batch after the other while all records of each have one shape, then the others together."""
        for index in range(len(found.heads)):
            self._selection.check(found, index)
            table = self._tables.of(found, index)
            if table is None:
                self._pace.alike = False
                for other in range(index + 1, len(found.heads)):
                    self._selection.check(found, other)
                yield from self._of_batches(found.since(index))
                return
            self._pace.alike = True
            if table.parts:
                yield from self._building.add_table(table)

    def _of_batches(self, found: Batches) -> Iterator[pa.RecordBatch]:
        for bodies in self._unpacker.of(found, self._rows):
            for records in self._records(bodies):
                for piece in _cut(self._within(records)):
                    yield from self._building.add(piece)

    def _records(self, bodies: Bodies) -> Iterator[Records]:
        try:
            yield from columns.records(bodies, self._rows)
        except RecordError as error:
            first = culprit(len(bodies.heads), lambda part: list(columns.records(bodies.only(part), self._rows)))
            raise damaged(self._range, int(bodies.heads["base_offset"][first]), error) from error

    def _within(self, records: Records) -> Records:
        offsets, start, end = records.offsets, self._range.start, self._range.end
        if offsets.size and offsets.min() >= start and offsets.max() < end:
            return records
        return records.only((offsets >= start) & (offsets < end))

    def _of_messages(self, found: OldMessages) -> Iterator[pa.RecordBatch]:
        yield from self._building.rest()
        for part in old_formats.rows(found, self._range, self._rows, self._check_crcs):
            yield self._building.of_messages(part)


def _cut(records: Records) -> Iterator[Records]:
    """Pieces that span at most ENOUGH bytes, or hold one record."""
    first, count = 0, len(records.starts)
    while first < count:
        last = max(first + 1, int(np.searchsorted(records.ends, records.starts[first] + ENOUGH, "right")))
        yield records if last - first == count else records.only(slice(first, last))
        first = last


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
