"""Spark's own Kafka connector, unmodified, reads from and writes to Odradek: `format("kafka")`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..clients.admin import create_topic, unique
from ..clients.raw.calls import fetch
from .frames import as_bytes, drain, load, rows, values
from .topics import NOW, WAIT, headers, send, undecided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.live, pytest.mark.needs("spark-connector")]
PRODUCER_ID = slice(43, 51)  # in a batch of magic 2


# -- reading


OTHERS = ["gzip", "snappy", "lz4"]


@pytest.mark.parametrize("codec", ["none", "zstd", *(pytest.param(codec, marks=pytest.mark.long) for codec in OTHERS)])
def test_all_records_are_read(spark: SparkSession, broker: Any, codec: str) -> None:
    """Each task except for the first begins within a batch."""
    topic = create_topic(broker, partitions=2)
    sent = send(broker, topic, range(500), 2, compression_type=codec)
    frame = load(spark.read, broker, subscribe=topic, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert rows(frame) == sent


def test_headers_are_read(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(20))
    frame = load(spark.read, broker, subscribe=topic, includeHeaders="true").orderBy("offset")
    found = [row.headers for row in frame.select("headers").collect()]
    assert [[(name, as_bytes(value)) for name, value in each or []] for each in found] == [
        headers(n) for n in range(20)
    ]


def test_subscribe_pattern(spark: SparkSession, broker: Any) -> None:
    stem = unique("pattern")
    topics = [create_topic(broker, f"{stem}-{name}") for name in ("a", "b", "not")]
    sent = [one for topic in topics for one in send(broker, topic, range(10))]
    assert rows(load(spark.read, broker, subscribePattern=f"{stem}-[ab]-.*")) == sent[:20]


def test_offsets_by_timestamp(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    sent = send(broker, topic, range(100), 2)
    at = lambda second: json.dumps({topic: dict.fromkeys("01", NOW + second * 1000)})  # noqa: E731
    between = {"startingOffsetsByTimestamp": at(30), "endingOffsetsByTimestamp": at(61)}
    frame = load(spark.read, broker, subscribe=topic, **between)
    assert rows(frame) == [one for one in sent if NOW + 30_000 <= one.timestamp < NOW + 61_000]
    after = {"startingOffsetsByTimestamp": at(100), "startingOffsetsByTimestampStrategy": "latest"}
    assert rows(load(spark.read, broker, subscribe=topic, **after)) == []


def test_isolation_levels(spark: SparkSession, broker: Any) -> None:
    """Records of aborted and open transactions are only visible with read_uncommitted."""
    topic = create_topic(broker)
    expected = undecided(broker, topic)
    assert len(expected) == 2
    for level, seen in expected.items():
        assert values(load(spark.read, broker, subscribe=topic, kafka_isolation_level=level)) == seen


def test_deleted_offsets_are_data_loss(spark: SparkSession, broker: Any) -> None:
    """Deleted offsets fail the query, or are skipped with failOnDataLoss=false."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = create_topic(broker)
    sent = send(broker, topic, range(20))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, 5)]).values()
    assert done.result(WAIT).low_watermark == 5
    start = json.dumps({topic: {"0": 0}})
    read = lambda fail: load(spark.read, broker, subscribe=topic, startingOffsets=start, failOnDataLoss=fail)  # noqa: E731
    with pytest.raises(Exception, match="Some data may have been lost"):
        rows(read("true"))
    assert rows(read("false")) == sent[5:]


# -- streams


def test_stream_continues_at_its_offsets(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker, partitions=2)
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    sent = send(broker, topic, range(100), 2)
    assert drain(load(spark.readStream, broker, **options), tmp_path, **sink) == [40, 40, 20]
    assert rows(spark.read.parquet(sink["path"])) == sent
    sent += send(broker, topic, range(100, 130), 2)
    assert drain(load(spark.readStream, broker, **options), tmp_path, **sink) == [30]
    assert rows(spark.read.parquet(sink["path"])) == sorted(sent, key=lambda one: one[2:5])


def test_stream_copies_one_topic_to_another(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    source, target = create_topic(broker), create_topic(broker)
    sink = {"format": "kafka", "topic": target, "kafka.bootstrap.servers": broker.bootstrap}
    expected = []
    for numbers in (range(50), range(50, 80)):
        expected += [(one.key, one.value) for one in send(broker, source, numbers)]
        frame = load(spark.readStream, broker, subscribe=source, startingOffsets="earliest")
        drain(frame.select("key", "value"), tmp_path, **sink)
        assert [(one.key, one.value) for one in rows(load(spark.read, broker, subscribe=target))] == expected


# -- writing


def save(frame: DataFrame, broker: Any, **options: str) -> None:
    """Write a frame with format kafka."""
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_with_topic_partition_and_headers_are_written(spark: SparkSession, broker: Any, codec: str) -> None:
    """The producer is idempotent, which is the default."""
    topics = sorted(create_topic(broker, partitions=2) for _ in range(2))
    frame = spark.range(0, 200, numPartitions=1).selectExpr(
        f"if(id < 100, '{topics[0]}', '{topics[1]}') as topic",
        "int(id % 2) as partition",
        "if(id = 50, null, binary(string(id))) as key",
        "if(id = 51, null, binary(concat('value ', id))) as value",
        "array(struct('h' as key, binary(string(id)) as value)) as headers",
    )
    save(frame, broker, includeHeaders="true", **{"kafka.compression.type": codec})
    read = load(spark.read, broker, subscribe=",".join(topics), includeHeaders="true")
    columns = ["topic", "partition", "key", "value", "headers"]
    order = ["topic", "partition", "offset"]
    assert read.orderBy(order).select(columns).collect() == frame.orderBy("topic", "partition", "id").collect()
    with broker.wire() as wire:
        assert int.from_bytes(fetch(wire, topics[0], 0).records[PRODUCER_ID], signed=True) >= 0


def test_rows_of_one_key_are_written_to_one_partition_in_order(spark: SparkSession, broker: Any) -> None:
    """The key determines the partition."""
    topic = create_topic(broker, partitions=4)
    frame = spark.range(0, 100, numPartitions=1).selectExpr("string(id % 10) as key", "string(id) as value")
    save(frame, broker, topic=topic)
    by_key: dict[bytes | None, list[int]] = {}
    places = set()
    for one in rows(load(spark.read, broker, subscribe=topic)):
        by_key.setdefault(one.key, []).append(int(one.value or b""))
        places.add((one.key, one.partition))
    assert len(places) == 10 and by_key == {b"%d" % key: list(range(key, 100, 10)) for key in range(10)}
