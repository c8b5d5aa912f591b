"""Record batches that are built of pieces of records: keys and values are copied while the piece is in the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from odradek.pipeline.decoding import columns, headers, old_formats
from odradek.pipeline.decoding.alike import Records
from odradek.pipeline.decoding.gather import Copies, Growing, Views, fixed, total
from odradek.pipeline.decoding.rooms import ROOM, shared
from odradek.pipeline.decoding.selection import damaged
from odradek.pipeline.decoding.tables import RecordTable
from odradek.pipeline.types import Range
from odradek.protocol.records.errors import RecordError

log = logging.getLogger(__name__)

TIME = pa.timestamp("us", "UTC")
_STRINGS = {"key": ("keys", "key_sizes"), "value": ("values", "value_sizes")}
_NUMBERS = {"offset": "offsets", "timestamp": "times", "timestampType": "time_types"}


class Building:
    """The next record batch of a range; nothing of a piece is needed after it was added, unless columns are views."""

    def __init__(self, range: Range, schema: pa.Schema, rows: int) -> None:
        """`schema` has the columns of the record batches, and `rows` is the most that one has."""
        self._range, self._schema, self._rows = range, schema, rows
        self._strings = {name: _growing(schema.field(name).type) for name in schema.names if name in _STRINGS}
        self._numbers: dict[str, list[np.ndarray]] = {name: [] for name in schema.names if name in _NUMBERS}
        self._headers: list[pa.Array] | None = [] if "headers" in schema.names else None
        self._views = pa.binary_view() in (schema.field(name).type for name in self._strings)
        self._count = self._size = 0  # records, and bytes of their strings and headers, or that views keep

    def hold(self, size: int) -> Iterator[pa.RecordBatch]:
        """Count a chunk of `size` bytes, to which the next pieces belong: a single view keeps all of it."""
        if self._views:
            yield from self._make_room(0, size)

    def add(self, records: Records) -> Iterator[pa.RecordBatch]:
        """Add a piece that is not empty; yields the record batch before it where there is no room for both."""
        yield from self._make_room(len(records.starts), self._bytes(records))
        for name, column in self._strings.items():
            at, sizes = (getattr(records, field) for field in _STRINGS[name])
            column.add(records.data, at, sizes)
        for name, parts in self._numbers.items():
            parts.append(getattr(records, _NUMBERS[name]))
        if self._headers is not None:
            self._headers.append(self._headers_of(records))

    def add_table(self, table: RecordTable) -> Iterator[pa.RecordBatch]:
        """The same for records of one shape."""
        rows, sizes = len(table.offsets), {name: table.size_of(name) for name in self._strings}
        strings = sum(max(size, 0) for size in sizes.values())
        kept = sum(part.rows * part.size for part in table.parts) if self._views else rows * strings
        yield from self._make_room(rows, kept)
        for name, column in self._strings.items():
            column.add_runs(table.data, table.runs(name), sizes[name])
        for name, parts in self._numbers.items():
            parts.append(getattr(table, _NUMBERS[name]))
        if self._headers is not None:
            self._headers.append(pa.nulls(rows, headers.TYPE))

    def _make_room(self, count: int, size: int) -> Iterator[pa.RecordBatch]:
        """Count what is added next."""
        if self._count + count > self._rows or self._size + size > ROOM:
            yield from self.rest()
            self._size = 0
        self._count, self._size = self._count + count, self._size + size

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was added since the last record batch, if anything was."""
        if self._count:
            made = {name: column.array() for name, column in self._strings.items()}
            numbers = {name: np.concatenate(parts) for name, parts in self._numbers.items()}
            made |= {name: self._array(name, numbers) for name in numbers}
            if self._headers is not None:
                made["headers"] = pa.concat_arrays(self._headers)
            rows, self._count, self._size = self._count, 0, 0
            for parts in (*self._numbers.values(), self._headers or []):
                parts.clear()
            yield self._batch(rows, made)

    def of_messages(self, part: old_formats.Rows) -> pa.RecordBatch:
        """Messages of old formats, which have no headers, alone."""
        made = {
            "offset": pa.array(part.offsets, pa.int64()),
            "timestampType": pa.array(part.time_types, pa.int32()),
            "headers": pa.nulls(len(part.offsets), headers.TYPE),
        }
        for name, found in (("key", part.keys), ("value", part.values)):
            if name in self._strings:
                made[name] = pa.array(found, self._schema.field(name).type)
        if "timestamp" in self._numbers:
            made["timestamp"] = self._times(np.array(part.times, np.int64), part.offsets)
        return self._batch(len(part.offsets), made)

    def _bytes(self, records: Records) -> int:
        if self._views:
            strings = int(records.ends[-1] - records.starts[0])
        else:
            strings = sum(total(getattr(records, _STRINGS[name][1])) for name in self._strings)
        return strings + (int((records.ends - records.headers).sum()) if self._headers is not None else 0)

    def _array(self, name: str, numbers: dict[str, np.ndarray]) -> pa.Array:
        if name == "timestamp":
            return self._times(numbers[name], numbers.get("offset"))
        return fixed(numbers[name], self._schema.field(name).type)

    def _times(self, times: np.ndarray, offsets: Sequence[int] | np.ndarray | None) -> pa.Array:
        """Times that µs cannot hold become the nearest that they can: for example nanoseconds written as ms."""
        shown, far = columns.micros(times)
        if far.size:
            where = f"of offsets {offsets[0]} to {offsets[-1]}" if offsets is not None else "in all"
            first = f", of offset {offsets[far[0]]}" if offsets is not None else ""
            log.warning(
                "%s-%d: %s %d records have timestamps that µs cannot hold, the first%s, %d ms: they get the nearest"
                " that µs can",
                *self._range.key, where, far.size, first, times[far[0]],
            )  # fmt: skip
        return fixed(shown, TIME)

    def _headers_of(self, records: Records) -> pa.Array:
        try:
            return headers.column(records)
        except RecordError as error:
            first = culprit(len(records.offsets), lambda part: headers.column(records.only(part)))
            raise damaged(self._range, int(records.offsets[first]), error) from error

    def _batch(self, rows: int, made: dict[str, pa.Array]) -> pa.RecordBatch:
        if "topic" in self._schema.names:
            made["topic"] = pa.repeat(pa.scalar(self._range.topic, pa.string()), rows)
        if "partition" in self._schema.names:
            made["partition"] = fixed(np.full(rows, self._range.partition, np.int32), pa.int32())
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)


def _growing(type: pa.DataType) -> Growing:
    return Views() if type == pa.binary_view() else Copies(shared().take)


def culprit(count: int, look: Callable[[slice], object]) -> int:
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
