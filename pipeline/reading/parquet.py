"""A task writes its range straight to Parquet files (option `odradek.parquet`): records stay in Arrow.

Spark's own writer turns each record into a JVM row and takes it apart again, which costs as much as reading and
writing. Here a frame has a row for each file instead: its name and its content. A file gets its name only when it is
complete. A task that is tried again writes files with other names, so only the files that the frame names count.
Names are `PARTITION-OFFSET-NUMBER-UUID.parquet`: a topic's name may begin with a dot or an underscore, which hides a
file from Spark, and may be longer than a file's name.

    odradek.parquet         folder, a path or file: URI that all executors share
    odradek.parquet.hourly  true: below it topic=…/date=…/hour=…/ by the records' timestamps in UTC, which then are no
                            columns of the files; records without one go to Hive's folder for null
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Range, Target

FILE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),  # below the folder
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("first", pa.int64()),  # offsets
        ("last", pa.int64()),
        ("size", pa.int64()),  # bytes
    ]
)
ROW_GROUP = 64 << 20  # bytes of records, before they are encoded
WAITING = 256 << 20  # the most bytes of unwritten records, of all hours
OPEN = 64  # files at once
MIXED = 8  # hours: batches with more are merged first, or each would leave a few rows in each of many files
_HOUR = 3_600_000_000  # µs
_NO_TIME = -1000  # µs: what Kafka's -1 ms is here
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS = range(int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) / timedelta(hours=1)), 70_389_528)  # years 1 to 9999
_NEVER = _HOURS.start - 1
_NULL = "__HIVE_DEFAULT_PARTITION__"
_STATISTICS = ["partition", "offset", "timestamp"]  # statistics of values have no reader


def write(records: Iterator[pa.RecordBatch], span: Range, target: Target) -> Iterator[pa.RecordBatch]:
    """Write the records of `span`; yields one batch with a row for each file. PipelineError where it cannot."""
    sheets = _Sheets(span, target)
    try:
        for hour, part in _by_hour(records) if target.hourly else ((0, batch) for batch in records):
            sheets.add(hour, part)
        sheets.close()
    except BaseException:
        sheets.drop()
        raise
    yield pa.RecordBatch.from_pylist(sheets.written, FILE_SCHEMA)


def _by_hour(records: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """All rows without their topic, which is a folder; the rows of an hour stay in order."""
    mixed: list[pa.RecordBatch] = []
    for batch in records:
        batch, hours = batch.drop_columns(["topic"]), _hours(batch)
        many = len(np.unique(hours)) > MIXED
        if many:
            mixed.append(batch)
        if mixed and (not many or sum(each.nbytes for each in mixed) >= ROW_GROUP):
            yield from _together(mixed)
            mixed = []
        if not many:
            yield from _cut(batch, hours)
    if mixed:
        yield from _together(mixed)


def _together(mixed: list[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    [batch] = pa.Table.from_batches(mixed).combine_chunks().to_batches()
    return _cut(batch, _hours(batch))


def _hours(batch: pa.RecordBatch) -> np.ndarray:
    """Each row's hour since 1970; _NEVER for a row without one."""
    times = batch.column("timestamp").cast(pa.int64()).to_numpy()
    hours: np.ndarray = times // _HOUR
    hours[(times == _NO_TIME) | (hours < _HOURS.start) | (hours >= _HOURS.stop)] = _NEVER
    return hours


def _cut(batch: pa.RecordBatch, hours: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each hour's rows. A small part is a copy: a slice would keep the whole batch in memory."""
    order = None if (hours[:-1] <= hours[1:]).all() else np.argsort(hours, kind="stable")
    hours = hours if order is None else hours[order]
    starts = np.flatnonzero(np.diff(hours, prepend=hours[:1] - 1))
    for start, end in zip(starts, [*starts[1:], len(hours)], strict=True):
        part = batch.slice(start, end - start)
        if order is not None:
            part = batch.take(pa.array(order[start:end]))
        elif 2 * part.nbytes < batch.nbytes:
            part = part.take(pa.array(np.arange(end - start)))
        yield int(hours[start]), part


def subfolder(topic: str, hour: int) -> str:
    """The folder for records of that hour since 1970, named as Hive and Spark do."""
    if hour == _NEVER:
        return f"topic={topic}/date={_NULL}/hour={_NULL}"
    time = _EPOCH + timedelta(hours=hour)
    return f"topic={topic}/date={time.year:04}-{time:%m-%d}/hour={time:%H}"


class _Sheets:
    """The files of a task by hour; `written` has the complete ones."""

    def __init__(self, span: Range, target: Target) -> None:
        self._span, self._target = span, target
        self._all: dict[int, _Sheet] = {}
        self._open: dict[int, None] = {}  # hours whose files are open; the most recently written comes last
        self._count = self._waiting = 0
        self.written: list[dict[str, object]] = []

    def add(self, hour: int, part: pa.RecordBatch) -> None:
        sheet = self._all.get(hour) or self._new(hour, part.schema)
        self._waiting += sheet.add(part)
        if sheet.waiting >= ROW_GROUP:
            self._flush(hour)
        while self._waiting >= WAITING:
            self._flush(max(self._all, key=lambda hour: self._all[hour].waiting))

    def _flush(self, hour: int) -> None:
        self._waiting -= self._all[hour].flush()
        self._open.pop(hour, None)
        self._open[hour] = None
        if len(self._open) > OPEN:
            self._finish(next(iter(self._open)))

    def _new(self, hour: int, schema: pa.Schema) -> _Sheet:
        span, self._count = self._span, self._count + 1
        name = f"{span.partition}-{span.start}-{self._count}-{uuid4().hex}.parquet"
        if self._target.hourly:
            name = f"{subfolder(span.topic, hour)}/{name}"
        self._all[hour] = sheet = _Sheet(Path(self._target.folder), name, schema)
        return sheet

    def close(self) -> None:
        for hour in list(self._all):
            self._finish(hour)

    def _finish(self, hour: int) -> None:
        sheet = self._all[hour]
        self._waiting -= sheet.waiting
        self.written.append({"topic": self._span.topic, "partition": self._span.partition} | sheet.close())
        del self._all[hour]
        self._open.pop(hour, None)

    def drop(self) -> None:
        for sheet in self._all.values():
            sheet.drop()


class _Sheet:
    """One file: rows that wait, and what is written, hidden from readers of the folder until it is complete."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._name, self._path, self._schema = name, folder / name, schema
        self._hidden = self._path.with_name(f".{self._path.name}.tmp")
        self._writer: pq.ParquetWriter | None = None
        self._parts: list[pa.RecordBatch] = []
        self.waiting = self._rows = self._last = 0
        self._first: int | None = None

    def add(self, part: pa.RecordBatch) -> int:
        """Returns the number of bytes added to those that wait."""
        offsets = part.column("offset")
        self._first = offsets[0].as_py() if self._first is None else self._first
        self._last, self._rows = offsets[-1].as_py(), self._rows + len(offsets)
        self._parts.append(part)
        added: int = part.nbytes
        self.waiting += added
        return added

    def flush(self) -> int:
        """Write what waits; returns its bytes."""
        with _told(self._path):
            if self._writer is None:
                self._writer = self._opened()
            self._writer.write_table(pa.Table.from_batches(self._parts, self._schema))
        written, self._parts, self.waiting = self.waiting, [], 0
        return written

    def _opened(self) -> pq.ParquetWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return pq.ParquetWriter(
            self._hidden, self._schema, compression="snappy", write_statistics=_STATISTICS, write_page_checksum=True
        )

    def close(self) -> dict[str, object]:
        """Finish the file; returns its row for the frame."""
        if self._parts or self._writer is None:
            self.flush()
        assert self._writer is not None
        with _told(self._path):
            self._writer.close()
            os.rename(self._hidden, self._path)
            size = self._path.stat().st_size
        return {"path": self._name, "rows": self._rows, "first": self._first, "last": self._last, "size": size}

    def drop(self) -> None:
        with suppress(OSError):  # of a disk that is full
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._hidden.unlink()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{path}: {os.strerror(error.errno) if error.errno else error}") from error
