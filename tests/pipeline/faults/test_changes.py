"""A batch is done again after its driver died, and nearly everything has changed meanwhile.

One task of two had written its rows. Then there are other cores and settings of adaptive execution, more partitions on
either side, more records, and of what was written the source has lost the first part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ...clients.admin import create_topic
from . import stream
from .checker import assert_each_once
from .stream import Stream

pytestmark = [pytest.mark.live, pytest.mark.needs("java"), pytest.mark.timeout(600)]  # Spark starts twic]

LIMIT = 100  # offsets of a batch
CONF = {
    "spark.master": "local[3,4]",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
}


def test_a_batch_is_done_again(broker: Any, tmp_path: Path) -> None:
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
    """What was sent then. Of partition 0 half of what the batch has read is gone, which is in the target."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic, count in ((source, 3), (target, 5)):
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    lost = TopicPartition(source, 0, LIMIT // 2 + LIMIT // 4)
    admin.delete_records([lost])[lost].result(30)
    return stream.feed(broker, source, range(300, 400), 3)
