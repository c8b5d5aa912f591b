"""Use what the tests use of Spark, for an archive of the loaded classes: batches, streams, tasks in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from odradek.pipeline.session import session

from ..pipeline.spark_settings import LOCAL, end_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Numbers(DataSource):
    """Partitions of two rows each: what Spark's part of a data source in Python loads."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> Reader:
        return Reader()

    def streamReader(self, schema: Any) -> StreamReader:  # Spark's name
        return StreamReader()


class Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(first) for first in (0, 2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((partition.value,), (partition.value + 1,))


class StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 4}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(at) for at in range(start["at"], end["at"], 2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return Reader().read(partition)


def batches(spark: SparkSession, folder: Path) -> None:
    """Write and read Parquet and JSON, with Python's tasks, a join and a sum."""
    rows = spark.range(20).selectExpr("id", "cast(id as string) as key", "to_json(struct(id)) as value")
    rows.write.partitionBy("key").parquet(str(folder / "parquet"))
    read = spark.read.parquet(str(folder / "parquet")).where("id > 5")
    read.join(rows, "id").groupBy(read.key).count().orderBy("count").write.json(str(folder / "json"))
    spark.dataSource.register(Numbers)
    spark.read.format("numbers").load().collect()
    spark.sql("select from_json('{\"a\": 1}', 'a int').a, date_format(now(), 'yyyy')").collect()
    rows.rdd.map(len).collect()


def counted(rows: DataFrame, batch: int) -> None:
    rows.count()


def stream(spark: SparkSession, folder: Path) -> None:
    """Run a stream from files to files, and one into a function."""
    source = spark.readStream.schema("id long, key string").parquet(str(folder / "parquet"))
    for name, writer in (
        ("files", source.writeStream.format("parquet").option("path", str(folder / "out"))),
        ("numbers", spark.readStream.format("numbers").load().writeStream.format("noop")),
        ("function", source.writeStream.foreachBatch(counted)),
    ):
        writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    spark = session("classes", **LOCAL)
    with tempfile.TemporaryDirectory() as folder:
        batches(spark, Path(folder))
        stream(spark, Path(folder))
    spark.stop()
    end_java()


if __name__ == "__main__":
    main()
