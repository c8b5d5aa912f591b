"""A data source whose tasks silently lose some records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from odradek.pipeline.reading import tasks
from odradek.pipeline.reading.admission import AdmissionReader
from odradek.pipeline.reading.batch import BatchReader
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.source import OdradekDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST = (7, 8)
"""Lost offsets of partition 1."""


def _without(records: Callable[..., Iterator[pa.RecordBatch]], *given: Any) -> Iterator[pa.RecordBatch]:
    for batch in records(*given):
        lost = pc.and_(pc.equal(batch["partition"], 1), pc.is_in(batch["offset"], pa.array(LOST, pa.int64())))
        yield batch.filter(pc.invert(lost))


def _losing(read: Callable[[Any], Iterator[pa.RecordBatch]], partition: Any) -> Iterator[pa.RecordBatch]:
    """Patch the reader within a task, and restore it, because other tasks use the process."""
    whole = tasks._records
    tasks._records = lambda *given: _without(whole, *given)
    try:
        yield from read(partition)
    finally:
        tasks._records = whole


class _Stream(AdmissionReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read without the lost records."""
        return _losing(super().read, partition)


class _Batch(BatchReader):
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read without the lost records."""
        return _losing(super().read, partition)


class Losing(OdradekDataSource):
    """The data source with those readers."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return _Batch(ReadOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        return _Stream(ReadOptions.parse(self.options, streaming=True))


@contextmanager
def losing(spark: SparkSession) -> Iterator[None]:
    """Replaces the data source within the block."""
    spark.dataSource.register(Losing)
    try:
        yield
    finally:
        spark.dataSource.register(OdradekDataSource)
