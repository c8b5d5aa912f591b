"""A batch is repeated with settings by which Spark would split it into other tasks: it keeps its tasks, or is
refused.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from odradek.pipeline.jobs.causes import cause
from odradek.pipeline.writing.cutting import ADAPTIVE, PARTITIONS

from ...clients.admin import create_topic
from ..spark_settings import spark_settings
from ..written import written as records
from . import stream
from .checker import assert_accounted
from .redone import EFFECTS, LIMIT, ROWS, read, redone, run, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

CHOICES = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": ("1b", "64m"),
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": ("1b", "1m"),
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": ("true", "false"),
}


def shuffled(spark: SparkSession, broker: Any, source: str, target: str, folder: Path) -> StreamingQuery:
    """A query with a shuffle: adaptive execution would coalesce its partitions by their sizes."""
    return written(read(spark, broker, source).repartition("value"), broker, target, folder)


def test_changed_sizes_of_adaptive_execution_do_not_change_a_repeated_batch(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    source, target = create_topic(broker, partitions=2), create_topic(broker, partitions=3)
    sent = stream.feed(broker, source, range(ROWS), 2)

    def choose_otherwise(_: str) -> None:
        for name, (_, other) in CHOICES.items():
            spark.conf.set(name, other)

    with spark_settings(spark, {name: choices[0] for name, choices in CHOICES.items()}):
        redone(spark, tmp_path, partial(shuffled, spark, broker, source, target, tmp_path), choose_otherwise)
    assert_accounted(broker, sent, target)


@pytest.mark.parametrize("off", [ADAPTIVE, pytest.param("spark.sql.adaptive.enabled", marks=pytest.mark.long)])
def test_adaptive_execution_is_refused_before_any_write(
    spark: SparkSession, broker: Any, tmp_path: Path, off: str
) -> None:
    """In a session with other settings than the pipeline's. Turning one of two settings off is enough."""
    source, target = create_topic(broker, partitions=2), create_topic(broker)
    sent = stream.feed(broker, source, range(LIMIT), 2)
    start = partial(shuffled, spark, broker, source, target, tmp_path)
    with spark_settings(spark, {ADAPTIVE: "true"}):
        with pytest.raises(Exception) as told:
            run(start)
        assert cause(told.value).endswith(f"into other tasks; set {ADAPTIVE}=false")
        assert records(broker, target) == []
        with spark_settings(spark, {off: "false"}):
            run(start)
    assert_accounted(broker, sent, target)


@pytest.mark.long
def test_changed_shuffle_partitions_are_refused(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Spark restores this setting only for stateful queries. With the former value, the batch is repeated."""
    source, target = create_topic(broker, partitions=2), create_topic(broker)
    sent = stream.feed(broker, source, range(ROWS), 2)
    start = partial(shuffled, spark, broker, source, target, tmp_path)

    def refused(_: str) -> None:
        with spark_settings(spark, {PARTITIONS: "7"}), pytest.raises(Exception) as told:
            run(start)
        assert f"{PARTITIONS} is 7 but was 2 in the stream's first batch" in cause(told.value)

    redone(spark, tmp_path, start, refused)
    assert_accounted(broker, sent, target)


@pytest.mark.long
def test_growing_broadcast_table_does_not_change_a_repeated_batch(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """The table exceeds the size of automatic broadcasts; the query has an explicit broadcast."""
    source, target = create_topic(broker, partitions=2), create_topic(broker)
    sent = stream.feed(broker, source, range(ROWS), 2)
    table = str(tmp_path / "table")

    def grow(rows: int) -> None:
        spark.range(rows).selectExpr("string(id) AS number").write.mode("overwrite").parquet(table)

    def start() -> StreamingQuery:
        rows = read(spark, broker, source).withColumn("number", F.expr("string(hash(value))"))
        joined = rows.join(F.broadcast(spark.read.parquet(table)), "number", "left")
        return written(joined.select("key", "value"), broker, target, tmp_path)

    grow(1)
    with spark_settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "10k"}):
        redone(spark, tmp_path, start, lambda effect: grow(10_000 * (1 + EFFECTS.index(effect) % 2)))
    assert_accounted(broker, sent, target)
