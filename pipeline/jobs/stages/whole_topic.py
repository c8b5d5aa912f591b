"""A topic as a table whose tasks plan for themselves what they read: all that there is when they run.

From PySpark 4.1 on a frame of a source in Python keeps what was planned for it first, so a table that is joined with a
stream would stay as it was in the first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.pipeline.jobs.in_arrow import mapped
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading.batch import BatchReader
from odradek.pipeline.reading.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The rows of `format("odradek")` with these options, read anew each time that Spark runs it."""
    from odradek.pipeline.source import OdradekDataSource

    tasks = spark.sparkContext.defaultParallelism
    schema = OdradekDataSource(dict(options)).schema()
    return mapped(spark.range(0, tasks, numPartitions=tasks), _Share(options, tasks), schema)


class _Share:
    """What one of some tasks reads: the partitions that are its own."""

    def __init__(self, options: Mapping[str, str], tasks: int) -> None:
        self._options, self._tasks = dict(options), tasks

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [number for batch in numbers for number in batch.column(0).to_pylist()]
        reader = BatchReader(ReadOptions.parse(self._options, streaming=False))
        for split in reader.partitions() if own else ():
            if isinstance(split, Split) and split.span.partition % self._tasks in own:
                yield from reader.read(split)
