"""A topic of a real broker as a table, from its files and over the wire; what librdkafka wrote is what comes out."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek import arrow

from ..clients.admin import create_topic, unique
from ..harness.apache import Apache
from ..harness.process import free_port
from ..pipeline.local import Local
from ..pipeline.test_brokers import delete_records_before
from ..pipeline.test_segments import delete_topic
from ..pipeline.topics import NOW, Sent, headers, send, undecided

pytestmark = pytest.mark.live

PARTITIONS = 3
RECORDS = 300
SECOND = timedelta(seconds=1)
BEGAN = datetime.fromtimestamp(NOW / 1000, UTC)
SPARKS = ("Spark", "failOnDataLoss", "kafka.", "odradek.", "Offsets")


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """Three partitions with 300 records, a second apart, in turn, in small segments."""
    name = create_topic(broker, partitions=PARTITIONS, segment_bytes=4000)
    send(broker, name, range(RECORDS), PARTITIONS, batch_num_messages=7)
    return name


def table(broker: Any, topic: str, *given: Any, **more: Any) -> pa.Table:
    return arrow.read(topic, *given, bootstrap_servers=broker.bootstrap, **more).read_all()


def numbers(found: pa.Table) -> list[int]:
    """The numbers of `send` that the rows come from, in their order."""
    return [
        offset * PARTITIONS + partition
        for partition, offset in zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    ]


def of_partitions(*picked: range) -> list[int]:
    """Numbers by partition, then by offset."""
    return [offset * PARTITIONS + partition for partition, offsets in enumerate(picked) for offset in offsets]


def expected(one: Sent) -> dict[str, Any]:
    pairs = [{"key": name, "value": value} for name, value in headers(one.offset * PARTITIONS + one.partition)]
    at = datetime.fromtimestamp(one.timestamp / 1000, UTC)
    return {
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": at,
        "key": one.key,
        "value": one.value,
        "headers": pairs or None,
    }


@pytest.mark.smoke
@pytest.mark.parametrize("local", ["only", "off"])
def test_a_topic_becomes_a_table(broker: Any, local: str) -> None:
    name = create_topic(broker, partitions=PARTITIONS)
    sent = send(broker, name, range(60), PARTITIONS)
    found = table(broker, name, local=local)
    assert found.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert str(found.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    assert found.to_pylist() == [expected(one) for one in sent]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read_by_several_threads(broker: Any, codec: str) -> None:
    name = create_topic(broker, partitions=PARTITIONS)
    sent = send(broker, name, range(90), PARTITIONS, compression_type=codec)
    assert table(broker, name, threads=3).to_pylist() == [expected(one) for one in sent]


@pytest.mark.parametrize("local", ["only", "off"])
def test_keys_and_values_are_views_where_they_are_asked_for(broker: Any, local: str) -> None:
    """All batches together, each of which keeps the memory that it refers to; in fragments likewise."""
    name = create_topic(broker, partitions=PARTITIONS, segment_bytes=4000)
    sent = send(broker, name, range(150), PARTITIONS, batch_num_messages=7)
    found = table(broker, name, local=local, views=True, threads=2)
    assert {str(found.schema.field(column).type) for column in ("key", "value")} == {"binary_view"}
    assert found.to_pylist() == [expected(one) for one in sent]
    parts = arrow.fragments(name, bootstrap_servers=broker.bootstrap, local=local, views=True, split_bytes=2000)
    again = pickle.loads(pickle.dumps(parts))
    tables = [part.read().read_all() for part in again]
    assert pa.concat_tables(tables).to_pylist() == [expected(one) for one in sent]
    assert {one.schema for one in tables} == {again[0].schema} == {found.schema}


@pytest.mark.parametrize("local", ["only", "off"])
def test_views_outlive_what_is_read_after_them(broker: Any, local: str) -> None:
    """Views of more than twelve bytes, in several segments and responses."""
    name = create_topic(broker, segment_bytes=4000)
    values = [b"%05d" % number * 40 for number in range(200)]
    arrow.write(pa.table({"value": values}), name, bootstrap_servers=broker.bootstrap, batch_size=1000)
    more: dict[str, Any] = {} if local == "only" else {"max_partition_fetch_bytes": 3000}
    batches = list(arrow.read(name, local=local, views=True, bootstrap_servers=broker.bootstrap, threads=1, **more))
    assert pa.Table.from_batches(batches)["value"].to_pylist() == values


@pytest.mark.parametrize("local", ["only", "off"])
def test_large_batches_of_like_records_and_of_others_are_read(broker: Any, local: str) -> None:
    """Batches of some 600 KB: with times that need another byte, with sizes and keys that change, within any range."""
    name = create_topic(broker)
    like = [b"%06d" % number * 100 for number in range(2000)]
    others = [b"%06d" % number * (number % 150) or None for number in range(2000)]
    sent = pa.table(
        {
            "key": [b"key"] * 2000 + [b"key", None, b"", b"k" * 300] * 500,
            "value": like + others,
            "timestamp": pa.array([NOW + number // 10 for number in range(4000)], pa.timestamp("ms", "UTC")),
        }
    )
    arrow.write(sent, name, bootstrap_servers=broker.bootstrap, batch_size=600_000, linger_ms=500)
    wanted = sent.set_column(2, "timestamp", sent["timestamp"].cast(pa.timestamp("us", "UTC"))).to_pylist()
    columns = ["key", "value", "timestamp"]
    for start, end in ((0, 4000), (500, 600), (1990, 3999)):
        for views in (False, True):
            found = table(broker, name, start, end, columns=columns, local=local, views=views)
            assert found.to_pylist() == wanted[start:end], (start, end, views)


# -- ranges and columns


@pytest.mark.parametrize(
    ("given", "picked"),
    [
        ({"start": 90}, [range(90, 100)] * 3),
        ({"start": 10, "end": 12}, [range(10, 12)] * 3),
        ({"start": "latest"}, [range(0)] * 3),
        ({"end": "earliest"}, [range(0)] * 3),
        ({"start": {0: 98, 1: "earliest", 2: "latest"}, "end": {0: 99, 1: 2, 2: "latest"}}, [range(98, 99), range(2)]),
        ({"start": BEGAN + 100 * SECOND, "end": BEGAN + 103 * SECOND}, [range(34, 35), range(33, 34), range(33, 34)]),
        ({"start": BEGAN + 297 * SECOND, "end": BEGAN + 10_000 * SECOND}, [range(99, 100)] * 3),
        ({"start": BEGAN + 10_000 * SECOND}, [range(0)] * 3),
        ({"partitions": [1], "start": 97}, [range(0), range(97, 100)]),
    ],
)  # fmt: skip
def test_range_is_by_offsets_by_times_and_by_partitions(
    broker: Any, topic: str, given: dict[str, Any], picked: list[range]
) -> None:
    assert numbers(table(broker, topic, **given)) == of_partitions(*picked)


def test_columns_are_those_that_are_asked_for(broker: Any, topic: str) -> None:
    found = table(broker, topic, 98, columns=["value", "topic", "offset", "timestampType"])
    assert found.schema.names == ["value", "topic", "offset", "timestampType"]
    assert found.to_pylist()[0] == {"value": b"value 294", "topic": topic, "offset": 98, "timestampType": 0}


def test_only_committed_records_are_read_unless_others_are_asked_for(broker: Any) -> None:
    name = create_topic(broker)
    wanted = undecided(broker, name)
    for isolation in ("read_committed", "read_uncommitted"):
        found = table(broker, name, isolation=isolation)["value"].to_pylist()
        assert [value.decode() for value in found] == wanted[isolation]
    assert (
        table(broker, name)["value"].to_pylist() == table(broker, name, isolation="read_committed")["value"].to_pylist()
    )


def test_result_does_not_depend_on_threads_and_memory(broker: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into many fragments, which threads read ahead, with room for next to nothing."""
    monkeypatch.setattr("odradek.arrowtables.read.SPLIT", 700)
    whole = table(broker, topic, threads=1)
    assert numbers(whole) == of_partitions(*[range(100)] * 3)
    assert table(broker, topic, threads=5, memory=1).equals(whole)


def test_empty_topic_is_a_table_without_rows(broker: Any) -> None:
    found = table(broker, create_topic(broker))
    assert found.num_rows == 0
    assert found.schema.names[0] == "partition"


# -- fragments


def test_fragments_cover_the_range_and_can_be_pickled(broker: Any, topic: str) -> None:
    found = arrow.fragments(topic, 10, bootstrap_servers=broker.bootstrap, split_bytes=1500, schema="text")
    assert len(found) > PARTITIONS
    covered = [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
    assert covered == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10, 100)]
    moved = pickle.loads(pickle.dumps(found))
    assert moved == found
    tables = [one.read().read_all() for one in moved]
    assert {(one.topic, kept.schema == one.schema) for one, kept in zip(found, tables, strict=True)} == {(topic, True)}
    assert pa.concat_tables(tables).equals(table(broker, topic, 10, schema="text"))


def test_passwords_are_not_shown(broker: Any, topic: str) -> None:
    (one, *_) = arrow.fragments(topic, bootstrap_servers=broker.bootstrap, sasl_jaas_config='password="secret"')
    assert topic in repr(one)
    assert "secret" not in repr(one)


# -- forms


def test_records_without_the_form_go_to_the_function(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b'{"id":1}', b"torn", b'{"id":3}']])
    taken: list[pa.RecordBatch] = []
    schema = pa.schema([("id", pa.int64())])
    found = table(broker, topic.name, columns=["value"], schema=schema, dead=taken.append)
    assert found.to_pylist() == [{"value": {"id": 1}}, {"value": {"id": 3}}]
    (dead,) = pa.Table.from_batches(taken).to_pylist()
    assert (dead["value"], dead["partition"], dead["offset"]) == (b"torn", 0, 1)


def test_record_without_the_form_is_an_error_where_no_function_takes_it(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"good", b"\xff"]])
    told = f"^{topic.name}-0: at offset 1 the value is not UTF-8; a function as dead= takes such records$"
    with pytest.raises(arrow.Unreadable, match=told):
        table(broker, topic.name, schema="text")


# -- errors


def check(raised: pytest.ExceptionInfo[arrow.PipelineError]) -> None:
    text = str(raised.value)
    assert "\n" not in text
    assert not [word for word in SPARKS if word in text], text


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"start": 3, "end": 2}, arrow.OptionError, "-0: the start 3 is after the end 2"),
        ({"end": 101}, arrow.DataLoss, "-0: offsets 100 to 100 do not exist; the log ends at 100; "),
        ({"start": 101}, arrow.OptionError, "-0: the start 101 is after the end 100"),
        ({"start": {0: 3}}, arrow.OptionError, "^start must name every partition: .*-1, .*-2 is missing"),
        ({"end": {0: 3, 7: 3}, "partitions": [0]}, arrow.OptionError, "^end names .*-7, which is not read"),
        ({"partitions": [0, 3]}, arrow.UnknownTopic, "-3 does not exist"),
    ],
)
def test_wrong_range_is_told_in_one_line(
    broker: Any, topic: str, given: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told) as raised:
        table(broker, topic, **given)
    check(raised)  # type: ignore[arg-type]


def test_records_that_are_gone_are_an_error(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"value"]] * 9)
    delete_records_before(broker, topic.name, 5)
    with pytest.raises(arrow.DataLoss, match=r"-0: offsets 2 to 4 are gone; the log starts at 5$") as raised:
        table(broker, topic.name, 2)
    check(raised)
    assert table(broker, topic.name)["offset"].to_pylist() == [5, 6, 7, 8]


def test_missing_topic_is_told_in_one_line(broker: Any) -> None:
    with pytest.raises(arrow.UnknownTopic, match=r"^nowhere-.* does not exist") as raised:
        table(broker, unique("nowhere"))
    check(raised)


def test_topic_that_is_deleted_before_it_is_read_is_an_error(broker: Any) -> None:
    topic = Local(broker)
    topic.put([[b"value"]] * 9)
    reader = arrow.read(topic.name, bootstrap_servers=broker.bootstrap)
    delete_topic(topic)
    with pytest.raises(arrow.UnknownTopic, match=topic.name) as raised:
        reader.read_all()
    check(raised)


def test_wrong_address_is_told_at_once() -> None:
    """Not after default.api.timeout.ms, which is a minute."""
    port = free_port()
    with pytest.raises(arrow.PipelineError, match=rf"^no broker responds: 127\.0\.0\.1:{port}: Connection refused$"):
        arrow.read("t", bootstrap_servers=f"127.0.0.1:{port}")


def test_reader_that_is_dropped_leaves_no_thread(broker: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.arrowtables.read.SPLIT", 700)
    reader = arrow.read(topic, bootstrap_servers=broker.bootstrap, threads=3, memory=1)
    reader.read_next_batch()
    del reader
    for thread in threading.enumerate():
        if thread.name == "odradek-arrow":
            thread.join(60)
            assert not thread.is_alive()


# -- Apache Kafka


@pytest.mark.needs("java-3.9.1")
def test_a_topic_of_apache_kafka_becomes_a_table(tmp_path: Path, fresh_topic: Callable[[Any], str]) -> None:
    """And a table becomes records of it."""
    kafka = Apache("3.9.1", tmp_path).start()
    try:
        name = fresh_topic(kafka)
        sent = send(kafka, name, range(60), PARTITIONS, compression_type="zstd")
        assert table(kafka, name).to_pylist() == [expected(one) for one in sent]
        assert arrow.write(table(kafka, name, columns=["value"]), name, bootstrap_servers=kafka.bootstrap) == 60
    finally:
        kafka.stop()


@pytest.fixture
def fresh_topic() -> Callable[[Any], str]:
    """Creates a topic with three partitions on a broker that is not ours."""

    def make(kafka: Any) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = unique("apache")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        return name

    return make
