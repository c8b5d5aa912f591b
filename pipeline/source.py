"""The data source `odradek` of PySpark: topics as tables, with the options and columns of Spark's Kafka source.

    spark.dataSource.register(OdradekDataSource)
    spark.read.format("odradek").option("kafka.bootstrap.servers", …).option("subscribe", "topic").load()

What can be said is in `options`; reading is `reading.reader`, writing is `writing.writer`.
"""

from __future__ import annotations

from odradek.pipeline.errors import OptionError
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.parsing import flag
from odradek.pipeline.reading.reader import BatchReader, StreamReader
from odradek.pipeline.writing import writer
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(_HEADER))])
FILES = StructType(
    [
        StructField("path", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        *(StructField(name, LongType()) for name in ("rows", "first", "last", "size")),
    ]
)


class OdradekDataSource(DataSource):
    """One `spark.read`, `spark.readStream`, `write` or `writeStream` with format `odradek`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "odradek"

    def schema(self) -> StructType:
        """The Kafka source's columns, with `headers` when includeHeaders is true; or of files (`reading.parquet`)."""
        if "odradek.parquet" in self.options:
            return FILES
        wanted = flag("includeHeaders", self.options.get("includeHeaders", "false"))
        return SCHEMA_WITH_HEADERS if wanted else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        self._check(schema)
        return BatchReader(ReadOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        self._check(schema)
        return StreamReader(ReadOptions.parse(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`; a topic is appended to, whatever the mode."""
        return writer.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        return writer.stream_writer(self.options, schema, overwrite)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError("the source odradek has a fixed schema: leave .schema(…) out and cast what it reads")
