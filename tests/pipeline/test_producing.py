"""A task of the writer against a broker; Spark is not needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql.types import BinaryType, StructField, StructType

from odradek.pipeline.errors import PipelineError, UnknownTopic
from odradek.pipeline.writing import destination, producing, writer
from odradek.pipeline.writing.writer import Plan, Sent

from ..clients.admin import create_topic, unique
from ..harness.process import free_port
from .written import written

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", autouse=True)
def no_idle_producers() -> Iterator[None]:
    """Close the cached producers; in Spark, a worker's producers end with the worker."""
    yield
    producing._idle.clear()


SCHEMA = StructType([StructField("topic", BinaryType()), StructField("value", BinaryType())])


def plan(broker: Any, topic: str | None, **kafka: str) -> Plan:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    schema = SCHEMA if topic else StructType().add("topic", "string").add("value", "binary")
    options = {"kafka.bootstrap.servers": broker.bootstrap, **given, **({"topic": topic} if topic else {})}
    return writer.writer(options, schema, False)._plan  # type: ignore[attr-defined]  # our writer has `_plan`


def test_keys_are_partitioned_as_by_javas_clients(broker: Any) -> None:
    """Also the empty key; records without a key are spread over all partitions."""
    topic = create_topic(broker, partitions=5)
    keys = [b"", b"k", *(os.urandom(size % 40) for size in range(300)), *[None] * 2000]
    batch = pa.record_batch({"key": keys, "value": [b"%d" % at for at in range(len(keys))]})
    sent = writer.write(plan(broker, topic, linger_ms="0"), iter([batch]))
    assert sent.records == {topic: len(keys)}
    found = written(broker, topic)
    assert Counter(record.key for record in found) == Counter(keys)
    for record in found:
        if record.key is not None:
            assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 5, record.key


def test_order_and_counts_over_many_batches(broker: Any) -> None:
    """More than the queue holds, to two topics; each row names its partition."""
    topics = [create_topic(broker, partitions=2) for _ in range(2)]
    rows = 30_000
    batch = pa.record_batch(
        {
            "topic": [topics[at // 2 % 2] for at in range(rows)],
            "partition": pa.array([at % 2 for at in range(rows)], pa.int32()),
            "value": [b"%0100d" % at for at in range(rows)],
        }
    )
    batches = (batch.slice(at, 1000) for at in range(0, rows, 1000))
    sent = writer.write(plan(broker, None, buffer_memory="100000"), batches)
    assert sent == Sent(dict.fromkeys(topics, 15_000), dict.fromkeys(topics, 1_500_000))
    for index, topic in enumerate(topics):
        found = written(broker, topic)
        numbers = [at for part in range(2) for at in range(rows) if at // 2 % 2 == index and at % 2 == part]
        assert [int(record.value or b"") for record in found] == numbers


def test_empty_write_needs_no_broker(broker: Any) -> None:
    """Also tests the totals of several tasks of which one failed."""
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    there = plan(broker, "t")
    nowhere = Plan("t", {"bootstrap.servers": f"127.0.0.1:{free_port()}"}, {}, True, False, False)
    assert writer.write(nowhere, iter([empty])).records == {"t": 0}
    assert writer.write(there, iter([])).records == {}
    assert writer.total([Sent({"a": 1}, {"a": 2}), None, Sent({"a": 3, "b": 0}, {"a": 4, "b": 0})]) == Sent(
        {"a": 4, "b": 0}, {"a": 6, "b": 0}
    )


def value(size: int = 10, partition: int | None = None) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"x" * size], "partition": pa.array([partition], pa.int32())})


def test_unknown_partition_fails_the_task(broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    writer.write(plan(broker, topic), iter([value()]))
    with pytest.raises(PipelineError, match=f"^{topic}-2: _UNKNOWN_PARTITION"):
        writer.write(plan(broker, topic), iter([value(partition=2)]))


def test_record_larger_than_max_message_bytes_fails_the_task(broker: Any) -> None:
    """Only the produce response reports it: the topic's limit is lower than the producer's."""
    topic = create_topic(broker, max_message_bytes=1000)
    with pytest.raises(PipelineError, match=f"^{topic}-0: MSG_SIZE_TOO_LARGE"):
        writer.write(plan(broker, topic), iter([value(), value(5000), value()]))


def test_record_larger_than_max_request_size_fails_the_task(broker: Any) -> None:
    topic = create_topic(broker)
    with pytest.raises(PipelineError, match=f"^{topic}: MSG_SIZE_TOO_LARGE"):
        writer.write(plan(broker, topic, max_request_size="2000"), iter([value(5000)]))


def test_record_larger_than_buffer_memory_fails_the_task(broker: Any) -> None:
    """An empty queue refuses it as a full one does; earlier records are sent."""
    topic = create_topic(broker)
    with pytest.raises(PipelineError, match=f"^{topic}: a record is larger than kafka.buffer.memory"):
        writer.write(plan(broker, topic, buffer_memory="2000"), iter([value(), value(5000)]))


def test_unreachable_broker_fails_the_task_with_the_connection_error() -> None:
    """The reason is the connection's error, not only the expired timeout."""
    server = f"127.0.0.1:{free_port()}"
    settings = {"bootstrap.servers": server, "delivery.timeout.ms": "3000"}
    with pytest.raises(PipelineError, match=f"^t: _MSG_TIMED_OUT.*{server}.*refused"):
        writer.write(Plan("t", settings, {}, True, False, False), iter([value()]))


def test_producers_are_cached_for_the_next_task(broker: Any) -> None:
    """At most two with different settings; a failed producer is not cached."""
    producing._idle.clear()
    topic = create_topic(broker)
    for client in ("a", "b", "a", "c", "c"):
        writer.write(plan(broker, topic, client_id=client), iter([value()]))
    assert [dict(key)["client.id"] for key in producing._idle] == ["a", "c"]
    with pytest.raises(PipelineError):
        writer.write(plan(broker, topic, client_id="c"), iter([value(partition=9)]))
    assert [dict(key)["client.id"] for key in producing._idle] == ["a"]
    assert len(written(broker, topic)) == 5


@pytest.mark.timeout(60)
def test_invalid_row_drops_queued_records() -> None:
    """A failing batch must not wait for the delivery of the others, here an hour, and they must not hide its error."""
    nowhere = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "delivery.timeout.ms": "3600000"}
    bad = pa.record_batch({"value": [b"x"], "topic": pa.array([None], pa.string())})
    good = pa.record_batch({"value": [b"x"], "topic": ["t"]})
    with pytest.raises(PipelineError, match="null topic"):
        writer.write(Plan(None, nowhere, {}, True, False, False), iter([good, bad]))


# -- checks on the driver


def test_missing_topic_is_created_by_the_drivers_metadata_request(broker: Any) -> None:
    topic = unique("new")
    plan(broker, topic)
    assert written(broker, topic) == []


def test_unknown_topic_is_an_error_without_auto_creation(
    fresh_broker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "APPEAR_SECONDS", 0.5)
    with pytest.raises(UnknownTopic, match=r"^topic none does not exist "):
        plan(fresh_broker(auto_create_topics_enable="false"), "none")


def test_invalid_topic_name_is_an_error(broker: Any) -> None:
    with pytest.raises(PipelineError, match=r"^no/topic: TOPIC_EXCEPTION: "):
        plan(broker, "no/topic")


def test_unreachable_broker_is_an_error_on_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "ANSWER_SECONDS", 0.5)
    server = f"127.0.0.1:{free_port()}"
    with pytest.raises(PipelineError, match=f"^no broker of {server} responds: "):
        destination.expect({"bootstrap.servers": server}, "t")
