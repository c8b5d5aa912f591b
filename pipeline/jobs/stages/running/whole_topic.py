"""A topic as a table whose tasks plan their own reads: all records that exist when they run.

From PySpark 4.1 on a frame of a Python source keeps its first plan, so a table joined with a stream would stay as it
was in the first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.pipeline.jobs.in_arrow import mapped
from odradek.pipeline.reading.batch import BatchReader
from odradek.pipeline.reading.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The rows of `format("odradek")` with these options, read again each time that Spark runs it."""
    from odradek.pipeline.source import OdradekDataSource

    tasks = spark.sparkContext.defaultParallelism
    schema = OdradekDataSource(dict(options)).schema()
    return mapped(spark.range(0, tasks, numPartitions=tasks), _Share(options, tasks), schema)


class _Share:
    """The share of one of several tasks: its own partitions."""

    def __init__(self, options: Mapping[str, str], tasks: int) -> None:
        self._options, self._tasks = dict(options), tasks

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [number for batch in numbers for number in batch.column(0).to_pylist()]
        reader = BatchReader(ReadOptions.parse(self._options, streaming=False))
        for piece in reader.partitions() if own else ():
            if piece.value.span.partition % self._tasks in own:
                yield from reader.read(piece)
