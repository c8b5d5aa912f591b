"""Spark accepts the record batches unchanged: it returns the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from .batches import PARTITION, TOPIC, some_log, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.live


def test_spark_returns_the_rows_of_record_batches(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    from odradek.pipeline.decoding import arrow
    from odradek.pipeline.source import SCHEMA_WITH_HEADERS
    from odradek.pipeline.types import Chunk

    log = some_log(5, 60)
    span = whole(log)
    chunks = [(bytes(chunk.data), chunk.aborted, chunk.until) for chunk in log.chunks([7, 20], True)]

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return arrow.batches((Chunk(*chunk) for chunk in chunks), span, names=SCHEMA_WITH_HEADERS.names, rows=70)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "columns"

        def schema(self) -> StructType:
            return SCHEMA_WITH_HEADERS

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    rows = spark.read.format("columns").load().collect()
    expected = log.rows(span.start, span.end, True)
    assert len(rows) == len(expected) > 70
    for row, wanted in zip(rows, expected, strict=True):
        assert (row.topic, row.partition, row.offset) == (TOPIC, PARTITION, wanted.offset)
        assert (row.key, row.value, row.timestampType) == (wanted.key, wanted.value, wanted.time_type)
        assert round(row.timestamp.timestamp() * 1000) == wanted.time
        pairs = None if row.headers is None else tuple((pair.key, pair.value) for pair in row.headers)
        assert pairs == wanted.headers
