"""The source's reader, driven as Spark does it but without Spark: plan, then read task by task."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from odradek.pipeline.reading.batch import BatchReader
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.splits import Split

from .accounting import Seen

SHORT = {"kafka.default.api.timeout.ms": "700", "kafka.retry.backoff.ms": "20", "kafka.fetch.max.wait.ms": "50"}


def planned(
    broker: Any, topic: str, start: int | None = None, end: int | None = None, /, **options: str
) -> tuple[BatchReader, list[Split]]:
    """A query of partition 0 and its tasks; `_` in an option's name stands for `.`."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    where = {"startingOffsets": start, "endingOffsets": end}
    given |= {name: json.dumps({topic: {"0": at}}) for name, at in where.items() if at is not None}
    named = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    reader = BatchReader(ReadOptions.parse({**named, **given}, streaming=False))
    return reader, [one.value for one in reader.partitions()]


def read(broker: Any, topic: str, start: int | None = None, end: int | None = None, /, **options: str) -> list[Seen]:
    """All records of such a query."""
    reader, tasks = planned(broker, topic, start, end, **options)
    return [row for task in tasks for row in read_split(reader, task)]


def read_split(reader: BatchReader, split: Split) -> list[Seen]:
    """The records that a task of Spark reads."""
    return seen(reader.read(InputPartition(split)))


def seen(batches: Iterable[pa.RecordBatch]) -> list[Seen]:
    """The records in their order."""
    found = []
    for batch in batches:
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for time, row in zip(times, batch.drop_columns(["timestamp"]).to_pylist(), strict=True):
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
            found.append(Seen(row["offset"], row["key"], row["value"], time // 1000, headers))
    return found
