"""The data source `odradek` reads all records, in streams each once, from a leader's files and over the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException

from ..clients.admin import create_topic, unique
from ..harness.process import wait_until
from .frames import as_bytes, drain, load, rows, values
from .topics import NOW, WAIT, Sent, headers, send, undecided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.live

Load = Callable[..., "DataFrame"]


@pytest.fixture(params=["only", "off"], ids=["files", "wire"])
def read(request: pytest.FixtureRequest, broker: Any) -> Load:
    """`read(spark.read, subscribe=…)`, only from files or only over the wire."""

    def frame(reader: Any, **options: Any) -> DataFrame:
        return load(reader, broker, "odradek", odradek_local=request.param, **options)

    return frame


def asked(broker: Any, method: str, argument: Any) -> Any:
    """The result of an admin request for one item. The client must stay alive until then."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = getattr(client, method)([argument]).values()
    return done.result(WAIT)


def delete_before(broker: Any, topic: str, offset: int) -> None:
    assert asked(broker, "delete_records", TopicPartition(topic, 0, offset)).low_watermark == offset


# -- batches


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_all_records_are_read(spark: SparkSession, broker: Any, read: Load, codec: str) -> None:
    """Each task of a partition, except for the first, begins within a batch."""
    topic = create_topic(broker, partitions=2)
    sent = send(broker, topic, range(500), 2, compression_type=codec)
    frame = read(spark.read, subscribe=topic, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert rows(frame) == sent


def test_a_frame_keeps_its_first_plan(spark: SparkSession, broker: Any) -> None:
    """A new frame has later records; with PySpark 4.0 the same frame has them, too."""
    topic = create_topic(broker)
    send(broker, topic, range(10))
    frame = load(spark.read, broker, "odradek", subscribe=topic)
    assert frame.count() == 10
    send(broker, topic, range(5))
    assert frame.count() == (15 if spark.version < "4.1" else 10)
    assert load(spark.read, broker, "odradek", subscribe=topic).count() == 15


def test_headers_are_read(spark: SparkSession, broker: Any, read: Load) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(20))
    frame = read(spark.read, subscribe=topic, includeHeaders="true").orderBy("offset")
    found = [row.headers for row in frame.select("headers").collect()]
    assert [[(name, as_bytes(value)) for name, value in each or []] for each in found] == [
        headers(n) for n in range(20)
    ]


def test_an_empty_topic_has_no_rows(spark: SparkSession, broker: Any, read: Load) -> None:
    assert rows(read(spark.read, subscribe=create_topic(broker, partitions=2))) == []


def test_subscribe_pattern_and_assign(spark: SparkSession, broker: Any, read: Load) -> None:
    stem = unique("pattern")
    topics = [create_topic(broker, f"{stem}-{name}", partitions=2) for name in ("a", "b", "not")]
    sent = [one for topic in topics for one in send(broker, topic, range(10), 2)]
    assert rows(read(spark.read, subscribePattern=f"{stem}-[ab]-.*")) == sent[:20]
    assert rows(read(spark.read, assign=json.dumps({topics[1]: [1]}))) == [one for one in sent[10:20] if one.partition]


def test_offset_and_timestamp_ranges(spark: SparkSession, broker: Any, read: Load) -> None:
    topic = create_topic(broker, partitions=2)
    sent = send(broker, topic, range(100), 2)
    between = {
        "startingOffsets": json.dumps({topic: {"0": 7, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 9}}),
    }
    expected = [one for one in sent if (one.offset >= 7 if one.partition == 0 else one.offset < 9)]
    assert rows(read(spark.read, subscribe=topic, **between)) == expected
    frame = read(spark.read, subscribe=topic, startingTimestamp=NOW + 30_000, endingTimestamp=NOW + 61_000)
    assert rows(frame) == [one for one in sent if NOW + 30_000 <= one.timestamp < NOW + 61_000]


def test_isolation_levels(spark: SparkSession, broker: Any, read: Load) -> None:
    """Records of aborted and open transactions are only visible with read_uncommitted."""
    topic = create_topic(broker)
    expected = undecided(broker, topic)
    assert len(expected) == 2
    for level, seen in expected.items():
        assert values(read(spark.read, subscribe=topic, kafka_isolation_level=level)) == seen


def test_deleted_offsets_are_data_loss(spark: SparkSession, broker: Any, read: Load) -> None:
    topic = create_topic(broker)
    sent = send(broker, topic, range(20))
    delete_before(broker, topic, 5)
    start = json.dumps({topic: {"0": 0}})
    with pytest.raises(Exception, match=f"{topic}-0: offsets 0 to 4 are gone; the log starts at 5"):
        rows(read(spark.read, subscribe=topic, startingOffsets=start))
    assert rows(read(spark.read, subscribe=topic, startingOffsets=start, failOnDataLoss="false")) == sent[5:]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_offsets_deleted_between_planning_and_reading(spark: SparkSession, broker: Any, fail: str) -> None:
    """The first remaining batch has deleted and other records; the fetch response has all of it."""
    topic = create_topic(broker)
    sent = send(broker, topic, range(20))
    frame = load(spark.read, broker, "odradek", odradek_local="off", subscribe=topic, failOnDataLoss=fail)
    frame._jdf.queryExecution().toRdd().getNumPartitions()  # plans the query, which requests the offsets
    delete_before(broker, topic, 5)
    if fail == "true":
        with pytest.raises(Exception, match=f"offset 0 of {topic}-0 no longer exists"):
            frame.collect()
    else:
        assert [row.offset for row in frame.collect()] == [one.offset for one in sent[5:]]


def test_invalid_options_fail_at_once(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker)
    for options, message in (
        ({"subscribe": "nowhere-to-be-found"}, "nowhere-to-be-found does not exist"),
        ({"subscribe": topic, "odradek.lokal": "off"}, "unknown option odradek.lokal"),
        ({}, "one of the options subscribe, subscribePattern and assign must be given"),
    ):
        with pytest.raises(Exception, match=message):
            rows(load(spark.read, broker, "odradek", **options))
    with pytest.raises(Exception, match="fixed schema"):
        load(spark.read.schema("value string"), broker, "odradek", subscribe=topic).collect()


# -- streams


@contextmanager
def running(frame: DataFrame, folder: Path) -> Iterator[tuple[StreamingQuery, Path]]:
    """A query that writes to a Parquet table."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "table")).start()
    try:
        yield query, folder / "table"
    finally:
        query.stop()


def batches(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def table(spark: SparkSession, path: Path) -> list[Sent]:
    return rows(spark.read.parquet(str(path)))


def test_stream_continues_in_small_steps(spark: SparkSession, broker: Any, read: Load, tmp_path: Path) -> None:
    topic = create_topic(broker, partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    sent = send(broker, topic, range(100), 2)
    for more, steps in ((0, [40, 40, 20]), (50, [40, 10])):
        sent = sorted(sent + send(broker, topic, range(100, 100 + more), 2), key=lambda one: one[2:5])
        with running(read(spark.readStream, **options), tmp_path) as (query, path):
            query.processAllAvailable()
            assert batches(query) == steps
            assert table(spark, path) == sent


def test_stream_from_latest_reads_only_new_records(
    spark: SparkSession, broker: Any, read: Load, tmp_path: Path
) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(10))
    with running(read(spark.readStream, subscribe=topic), tmp_path) as (query, path):
        query.processAllAvailable()
        sent = send(broker, topic, range(10, 20))
        query.processAllAvailable()
        assert table(spark, path) == sent


def test_stream_reads_new_partitions_and_topics_of_its_pattern(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    stem = unique("grows")
    topic = create_topic(broker, stem)
    sent = send(broker, topic, range(10))
    options = {"subscribePattern": f"{stem}-.*", "startingOffsets": "earliest"}
    with running(load(spark.readStream, broker, "odradek", **options), tmp_path) as (query, path):
        query.processAllAvailable()
        asked(broker, "create_partitions", NewPartitions(topic, 2))
        sent += send(broker, topic, range(10, 20), 2)
        sent += send(broker, create_topic(broker, stem), range(5))
        wait_until(
            lambda: table(spark, path) == sorted(sent, key=lambda one: one[2:5]), 60, "all records are in the table"
        )


def test_available_now_runs_read_all_records_once(spark: SparkSession, broker: Any, read: Load, tmp_path: Path) -> None:
    topic = create_topic(broker, partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    sent = []
    for numbers in (range(100), range(100, 130)):
        sent += send(broker, topic, numbers, 2)
        assert drain(read(spark.readStream, **options), tmp_path, **sink) == [len(numbers)]
        assert table(spark, tmp_path / "table") == sorted(sent, key=lambda one: one[2:5])


def test_progress_is_committed_to_a_group(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic, group = create_topic(broker, partitions=2), unique("lag")
    send(broker, topic, range(10), 2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "odradek_commit_group": group}
    with running(load(spark.readStream, broker, "odradek", **options), tmp_path) as (query, _):
        query.processAllAvailable()
        send(
            broker, topic, [10], 2
        )  # Spark commits a batch when it starts the next one; two partitions may make two more batches
        query.processAllAvailable()
        wait_until(lambda: committed(broker, group) >= {0: 5, 1: 5}.items(), 60, "the offsets are committed")


def committed(broker: Any, group: str) -> Any:
    found = asked(broker, "list_consumer_group_offsets", ConsumerGroupTopicPartitions(group)).topic_partitions
    return {each.partition: each.offset for each in found}.items()


def test_stream_stops_at_deleted_offsets_or_continues_after_them(
    spark: SparkSession, broker: Any, read: Load, tmp_path: Path
) -> None:
    """Retention has deleted unread records: failOnDataLoss decides."""
    topic = create_topic(broker)
    sent = send(broker, topic, range(10))
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    drain(read(spark.readStream, **options), tmp_path, **sink)
    sent += send(broker, topic, range(10, 30))
    delete_before(broker, topic, 15)
    with pytest.raises(Exception, match=f"{topic}-0: offsets 10 to 14 are gone; the log starts at 15"):
        drain(read(spark.readStream, **options), tmp_path, **sink)
    assert drain(read(spark.readStream, failOnDataLoss="false", **options), tmp_path, **sink) == [15]
    assert table(spark, tmp_path / "table") == sent[:10] + sent[15:]


def test_stream_waits_for_min_offsets_per_trigger(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 50}
    send(broker, topic, range(10))
    with running(load(spark.readStream, broker, "odradek", **options), tmp_path) as (query, _):
        query.processAllAvailable()
        send(broker, topic, range(10, 20))
        query.processAllAvailable()  # returns after a trigger without a batch
        assert batches(query) == [10]
        send(broker, topic, range(20, 100))
        wait_until(lambda: batches(query) == [10, 90], 60, "one batch has the records of both writes")


def test_available_now_keeps_max_offsets_per_trigger(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Three queries: two with new records, and one without."""
    topic = create_topic(broker, partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    for steps in ([40, 40, 20], [40, 40, 20]):
        send(broker, topic, range(100), 2)
        frame = load(spark.readStream, broker, "odradek", **options)
        assert drain(frame, tmp_path, format="noop") == steps
    assert drain(load(spark.readStream, broker, "odradek", **options), tmp_path, format="noop") == []


def test_progress_has_the_latest_offsets(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(50))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    with running(load(spark.readStream, broker, "odradek", **options), tmp_path) as (query, _):
        query.processAllAvailable()
        sources = [progress["sources"][0] for progress in query.recentProgress if progress["numInputRows"]]
    behind = [offset(one["latestOffset"], topic) - offset(one["endOffset"], topic) for one in sources[1:]]
    assert behind == [10, 0]


def offset(text: str, topic: str) -> int:
    return int(json.loads(text)[topic]["0"])


def test_chosen_columns_are_read(spark: SparkSession, broker: Any) -> None:
    topic = create_topic(broker)
    sent = send(broker, topic, range(20))
    frame = load(spark.read, broker, "odradek", subscribe=topic, odradek_columns="offset,key,headers,partition")
    assert frame.columns == ["offset", "key", "headers", "partition"]
    found = frame.orderBy("offset").collect()
    assert [(row.offset, as_bytes(row.key), row.partition) for row in found] == [(n.offset, n.key, 0) for n in sent]
    assert any(row.headers for row in found)
    counted = load(spark.read, broker, "odradek", subscribe=topic, odradek_columns="timestampType")
    assert counted.count() == 20


@pytest.mark.parametrize("columns", ["", "key,", "key,key", "Key", "size"])
def test_unknown_columns_are_refused(spark: SparkSession, broker: Any, columns: str) -> None:
    with pytest.raises(PySparkException, match=r"odradek\.columns must be a list of columns out of key, value, topic"):
        load(spark.read, broker, "odradek", subscribe="t", odradek_columns=columns)
