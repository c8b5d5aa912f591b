"""A named batch (`df.write`) dies and is written again in a session that splits it into other tasks: each row is
written once, or the second write is refused.
"""

from __future__ import annotations

import itertools
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import functions as F

import odradek.pipeline
from odradek.pipeline.jobs.causes import cause
from odradek.pipeline.writing.transactions import PREFIX

from ...clients.admin import create_topic, unique
from ..spark_settings import spark_settings
from ..test_source import delete_before
from ..test_transactions import transactional_ids
from . import stream
from .checker import assert_accounted, ids
from .redone import OF_BATCHES, deaths, dies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

ROWS, UNITS = 60, 4
FIRST = {  # two tasks of several units each
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1b",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": "2",  # unset: the number of Spark's cores
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "5.0",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "256m",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.leafNodeDefaultParallelism": "2",
}
FEWER = {  # fewer tasks, as on one core
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": "1",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1m",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
MORE = {  # more tasks, as on seven cores
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": "7",
    "spark.sql.leafNodeDefaultParallelism": "7",
    "spark.sql.shuffle.partitions": "7",
}
OTHERS = [
    {"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.shuffle.partitions": "5"},
    {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "10m"},
    {
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "0",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1b",
        "spark.sql.shuffle.partitions": "3",
    },
]


def conf(spark: SparkSession, **changed: str) -> AbstractContextManager[None]:
    """FIRST with these changes."""
    return spark_settings(spark, FIRST | changed)


class Batches:
    """Named batches: the rows of a topic, joined with a table of numbers, to another topic."""

    def __init__(self, spark: SparkSession, broker: Any, source: str = "", target: str = "", **options: str) -> None:
        """New topics unless some are given; `options` of the source."""
        self._spark, self._broker, self._name = spark, broker, unique("batch")
        self.source = source or create_topic(broker, partitions=2)
        self.target = target or create_topic(broker, partitions=3)
        self.sent: list[str] = []
        self.batch, self._begin = -1, 0
        self.options = options
        self.sink: dict[str, str] = {}  # more options of the sink

    def unit(self, number: int) -> str:
        """The transactional id of a unit, which is also its group id."""
        return f"{PREFIX}{self._name}-unit-{number}"

    def next(self) -> None:
        """The next batch begins where this one ends."""
        self.batch, self._begin = self.batch + 1, len(self.sent)
        numbers = range(self._begin, self._begin + ROWS)
        self.sent += stream.feed(self._broker, self.source, numbers, 2)

    def rows(self) -> DataFrame:
        """The rows of this batch, repartitioned by unit."""
        ends = {name: f'{{"{self.source}":{{"0":{at // 2},"1":{at // 2}}}}}' for name, at in self._offsets()}
        given = {"kafka.bootstrap.servers": self._broker.bootstrap, "assign": f'{{"{self.source}":[0,1]}}', **ends}
        read = self._spark.read.format("odradek").options(**{**given, **self.options}).load()
        table = self._spark.range(1000).selectExpr("id number", "'a' named")
        joined = read.selectExpr("key", "value", "pmod(hash(key), 1000) number").join(table, "number")
        return joined.selectExpr("key", "value", f"pmod(hash(key), {UNITS}) unit").repartition("unit")

    def _offsets(self) -> list[tuple[str, int]]:
        return [("startingOffsets", self._begin), ("endingOffsets", self._begin + ROWS)]

    def write(self, rows: DataFrame | None = None, target: str = "") -> None:
        given = {"id": self._name, "by": "unit", "batch": str(self.batch)}
        named = {f"odradek.transactional.{option}": value for option, value in given.items()}
        writer = (self.rows() if rows is None else rows).write.format("odradek").mode("append")
        writer = writer.option("kafka.bootstrap.servers", self._broker.bootstrap).option("topic", target or self.target)
        writer.options(**{"odradek.transactional": "true"}, **named, **self.sink).save()

    def more_partitions(self) -> None:
        """Add partitions to both topics; the batch keeps the partitions that it began with."""
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        for topic, count in ((self.source, 3 + self.batch), (self.target, 4 + self.batch)):
            admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)

    def die(self, folder: Path, effect: str) -> None:
        """Let the next batch die after that effect."""
        self.next()
        with conf(self._spark), dies(folder, effect):
            self.write()


README = Path(odradek.pipeline.__path__[0], "README.md")


def test_recipe_of_the_readme_writes_each_row_once(spark: SparkSession, broker: Any) -> None:
    """Batches of a stream, one of them repeated; each unit has one transactional id."""
    topic = create_topic(broker)
    [recipe] = re.findall(r"^```python\n(def write.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    known: dict[str, Any] = {"kafka": kafka, "expr": F.expr}
    exec(recipe, known)
    for batch in (0, 1, 1):
        with conf(spark, **(MORE if batch else FEWER)):
            known["write"](
                spark.range(40 * batch, 40 * batch + 40).selectExpr("string(id) key", "string(id) value"), batch
            )
    assert sorted(map(int, ids(broker, topic))) == list(range(80))
    assert len([name for name in transactional_ids(broker) if name.startswith("odradek-spark-enriched-unit-")]) == 8


ALL = [*itertools.product(OF_BATCHES, (FEWER, MORE)), *(("half", other) for other in OTHERS)]
SOME = [("begun", MORE), ("half", FEWER), ("half", MORE), ("half", OTHERS[0]), ("told", FEWER)]


@pytest.mark.parametrize("cases", [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)])
def test_named_batch_repeated_with_other_tasks_is_written_once(
    spark: SparkSession, broker: Any, tmp_path: Path, cases: list[tuple[str, dict[str, str]]]
) -> None:
    """More records arrive meanwhile, and both topics get more partitions."""
    batches = Batches(spark, broker)
    with deaths(spark, tmp_path):
        for effect, change in cases:
            batches.die(tmp_path, effect)
            batches.more_partitions()
            with conf(spark, **change):
                batches.write()
    assert_accounted(broker, batches.sent, batches.target)


@pytest.mark.parametrize("effect", ["half", pytest.param("told", marks=pytest.mark.long)])
def test_named_batch_repeated_with_other_rows_is_refused(
    spark: SparkSession, broker: Any, tmp_path: Path, effect: str
) -> None:
    """Changed values, another topic, records that retention has deleted: no row is written twice."""
    batches, other = Batches(spark, broker), create_topic(broker)
    with deaths(spark, tmp_path), conf(spark):
        batches.die(tmp_path, effect)
        changed = batches.rows().selectExpr("key", "upper(string(value)) value", "unit")
        for rows, target in ((changed.repartition("unit"), ""), (None, other)):
            with pytest.raises(Exception) as told:
                batches.write(rows, target)
            assert "was written before with other rows" in cause(told.value)
        delete_before(broker, batches.source, ROWS // 2)
        batches.options["failOnDataLoss"] = "false"
        with pytest.raises(Exception) as told:
            batches.write()
        assert "was written before with other rows" in cause(told.value)
    found = [one.lower() for one in ids(broker, batches.target)] + ids(broker, other)
    assert len(found) == len(set(found))
