"""The data source `odradek` of PySpark: topics as tables, with the options and columns of Spark's Kafka source.

    spark.dataSource.register(OdradekDataSource)
    spark.read.format("odradek").option("kafka.bootstrap.servers", …).option("subscribe", "topic").load()

`reading.read_options` and `writing.write_options` have the options; `reading.batch` and `reading.stream` read,
`writing.writer` writes.
"""

from __future__ import annotations

from importlib.util import find_spec

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

from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading.batch import BatchReader, FilteredReader
from odradek.pipeline.reading.read_options import ReadOptions, columns
from odradek.pipeline.writing import writer

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
        """The name for `format`."""
        return "odradek"

    def schema(self) -> StructType:
        """The Kafka source's columns, or the selected ones; of files with `odradek.parquet` (`reading.parquet`)."""
        if "odradek.parquet" in self.options:
            return FILES
        return StructType([SCHEMA_WITH_HEADERS[name] for name in columns(self.options)])

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        self._check(schema)
        return _reader(ReadOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        self._check(schema)
        return _stream_reader(ReadOptions.parse(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`; it always appends, whatever the mode."""
        return writer.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        return writer.stream_writer(self.options, schema, overwrite)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError("the source odradek has a fixed schema: leave out .schema(…) and cast the columns")


def _reader(options: ReadOptions) -> DataSourceReader:
    if not options.pushdown:
        return BatchReader(options)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise OptionError("odradek.pushdown needs PySpark 4.1 or later")
    return FilteredReader(options)


def _stream_reader(options: ReadOptions) -> DataSourceStreamReader:
    if find_spec("pyspark.sql.streaming.datasource") is None:
        from odradek.pipeline.reading.former import FormerStreamReader

        return FormerStreamReader(options)
    from odradek.pipeline.reading.admission import AdmissionReader

    return AdmissionReader(options)
