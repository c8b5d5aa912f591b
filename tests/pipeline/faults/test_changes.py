"""A batch is repeated after its driver died, and nearly everything has changed in between.

One of two tasks had written its rows. The next driver has other cores and settings of adaptive execution, source and
target have more partitions, there are more records, and retention has deleted the first part of the written ones. All
but cores and Spark's settings also change after every other effect; see `test_redo_cutting` for Spark's choices, and
its neighbours for leaders, quotas and tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from ...clients.admin import create_topic
from ..test_source import delete_before
from . import stream
from .checker import assert_accounted, assert_each_once
from .redone import EFFECTS, LIMIT, ROWS, read, redone, written
from .stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.needs("java"), pytest.mark.timeout(600)]  # Spark starts twice

CONF = {
    "spark.master": "local[3,4]",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
}


@pytest.mark.long  # the other test has all changes but the cores, and these matter only with AQE
def test_batch_repeated_by_another_driver_is_written_once(broker: Any, tmp_path: Path) -> None:
    source, target = create_topic(broker, partitions=2), create_topic(broker, partitions=3)
    sent = stream.feed(broker, source, range(300), 2)
    with stream.opened(Stream(tmp_path / "story", broker, source, target, LIMIT, t1_1="stray")) as query:
        query.await_file("died/1-1")
        query.await_file("done/1-0")
        query.kill()
        sent += changed(broker, source, target)
        query.change(reading={"failOnDataLoss": "false"}, conf=CONF)
        query.start()
        query.await_rows(len(sent))
        query.finish()
    assert_each_once(broker, target, sent)


def changed(broker: Any, source: str, target: str) -> list[str]:
    """Make the changes; returns new ids. Partition 0 loses half of the batch's records, which the target has."""
    add_partitions(broker, {source: 3, target: 5})
    delete_before(broker, source, LIMIT // 2 + LIMIT // 4)
    return stream.feed(broker, source, range(300, 400), 3)


def add_partitions(broker: Any, partitions: dict[str, int]) -> None:
    """Raise the partition counts of these topics."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic, count in partitions.items():
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)


def test_batch_repeated_after_each_effect_is_written_once(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    source, target = create_topic(broker, partitions=2), create_topic(broker, partitions=3)
    sent = stream.feed(broker, source, range(ROWS), 2)

    def change(effect: str) -> None:
        batch = EFFECTS.index(effect)
        begin, end = (offset(tmp_path, source, number) for number in (batch - 1, batch))
        add_partitions(broker, {source: 3 + batch, target: 4 + batch})
        delete_before(broker, source, (begin + end) // 2)
        sent.extend(stream.feed(broker, source, range(ROWS + 40 * batch, ROWS + 40 * (batch + 1)), 3 + batch))

    def start() -> StreamingQuery:
        return written(read(spark, broker, source, failOnDataLoss="false"), broker, target, tmp_path)

    redone(spark, tmp_path, start, change)
    assert_accounted(broker, sent, target)


def offset(folder: Path, topic: str, batch: int) -> int:
    """The end offset of a batch in partition 0, from the checkpoint."""
    if batch < 0:
        return 0
    ends = json.loads((folder / f"checkpoint/offsets/{batch}").read_text().splitlines()[-1])
    return int(ends[topic]["0"])
