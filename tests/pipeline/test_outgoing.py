"""Rows to records, without Spark and without a broker; and the producer's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.writing import outgoing, producer_settings
from odradek.pipeline.writing.outgoing import Outgoing
from odradek.pipeline.writing.stamps import CarriedIds, Positions

HEADERS = ArrayType(StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]))
TEXTS = ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())]))
TEXT, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TASK = b"t" * 28


def pairs(*rows: list[tuple[str | None, bytes | None]] | None) -> pa.Array:
    lists = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(lists, PAIRS)


def records(to: str | None = "t", ids: Any = None, with_headers: bool = True, **columns: Any) -> list[Any]:
    return list(Outgoing(to, with_headers, ids).records(pa.record_batch(columns)))


# -- requirements on columns


def schema(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "stamped"),
    [
        ({"value": BINARY}, "t", False),
        ({"value": TEXT, "key": TEXT, "topic": TEXT, "partition": INT}, None, False),
        ({"value": TEXT, "key": BINARY, "topic": TEXT, "headers": HEADERS}, None, False),
        ({"value": BINARY, "topic": INT}, "t", False),  # the option has precedence
        ({"value": BINARY, "id": LONG, "timestamp": TimestampType()}, "t", False),
        ({"value": BINARY, "id": BINARY}, "t", True),
        ({"value": BINARY, "timestamp": TEXT}, "t", False),  # the column is ignored
    ],
)
def test_valid_schemas_are_accepted(columns: dict[str, DataType], topic: str | None, stamped: bool) -> None:
    outgoing.check(schema(columns), topic, stamped)


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"value": BINARY}, None, "the option topic is required"),
        ({"key": BINARY}, "t", "'value' is required"),
        ({"Value": BINARY}, "t", "'value' is required"),
        ({"value": INT}, "t", "'value' has type int but must be string or binary"),
        ({"value": TEXT, "key": ArrayType(TEXT)}, "t", "'key' has type array<string> but must be string or binary"),
        ({"value": TEXT, "topic": BINARY}, None, "'topic' has type binary but must be string"),
        ({"value": TEXT, "partition": LONG}, "t", "'partition' has type bigint but must be int"),
        ({"value": TEXT, "headers": TEXTS}, "t", "'headers' has type array<"),
        ({"value": TEXT, "id": LONG}, "t", "'id' has type bigint but must be string or binary"),
    ],
)
def test_invalid_schemas_are_refused_in_one_line(columns: dict[str, DataType], topic: str | None, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        outgoing.check(schema(columns), topic, stamped=True)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_timestamp_column_must_be_a_timestamp() -> None:
    outgoing.check(schema({"value": BINARY, "timestamp": TimestampType()}), "t", stamped=False, timed=True)
    with pytest.raises(OptionError, match="'timestamp' has type bigint but must be timestamp"):
        outgoing.check(schema({"value": BINARY, "timestamp": LONG}), "t", stamped=False, timed=True)
    with pytest.raises(OptionError, match=r"odradek\.timestamps: the column 'timestamp' is required"):
        outgoing.check(schema({"value": BINARY}), "t", stamped=False, timed=True)


# -- records


def test_values_may_be_bytes_text_or_null() -> None:
    """Also with Spark's large types (spark.sql.execution.arrow.useLargeVarTypes)."""
    for text in (pa.string(), pa.large_string()):
        found = records(value=pa.array(["ä", None, ""], text), key=pa.array([b"\xff", b"", None]))
        assert found == [
            ("t", "ä".encode(), b"\xff", -1, None, 0),
            ("t", None, b"", -1, None, 0),
            ("t", b"", None, -1, None, 0),
        ]


def test_topic_option_has_precedence_over_the_column() -> None:
    columns = {"value": ["v"], "topic": ["column"], "partition": pa.array([3], pa.int32())}
    assert records(**columns) == [("t", b"v", None, 3, None, 0)]
    assert records(to=None, **columns) == [("column", b"v", None, 3, None, 0)]


def test_a_partition_may_be_null() -> None:
    found = records(value=["a", "b"], partition=pa.array([None, 0], pa.int32()))
    assert [record[3] for record in found] == [-1, 0]


def test_headers_of_rows_are_written() -> None:
    headers = pairs([("a", b"1"), ("a", None)], None, [], [("b", b"")])
    found = records(value=["v"] * 4, headers=headers)
    assert [record[4] or [] for record in found] == [[("a", b"1"), ("a", None)], [], [], [("b", b"")]]
    sliced = pa.record_batch({"value": ["v"] * 4, "headers": headers}).slice(2)
    assert [record[4] for record in Outgoing("t", True, None).records(sliced)] == [[], [("b", b"")]]
    assert records(value=["v"] * 4, headers=headers, with_headers=False)[0][4] is None


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"topic": ["t", None]}, "null topic present in the data"),
        ({"topic": ["t", "t"], "partition": pa.array([0, -2], pa.int32())}, "partition -2 present"),
        ({"topic": ["t", "t"], "headers": pairs([("a", None)], [(None, b"1")])}, "a header without a key"),
    ],
)
def test_invalid_rows_are_refused(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        records(to=None, value=["a", "b"], **columns)


def test_bytes_are_counted_by_topic() -> None:
    rows = Outgoing(None, True, None)
    batch = pa.record_batch({"topic": ["a", "b", "a"], "value": ["12", None, "345"], "key": [None, b"6", b"7"]})
    assert sorted(rows.bytes_by_topic(batch)) == [("a", 2, 6), ("b", 1, 1)]
    assert list(Outgoing("t", True, None).bytes_by_topic(batch)) == [("t", 3, 7)]
    assert list(Outgoing("t", True, None).bytes_by_topic(batch.slice(0, 0))) == [("t", 0, 0)]


# -- timestamps


def times(*micros: int | None, tz: str = "UTC") -> list[int]:
    batch = pa.record_batch({"value": ["v"] * len(micros), "timestamp": pa.array(micros, pa.timestamp("us", tz))})
    return [record[5] for record in Outgoing("t", True, None, timed=True).records(batch)]


def test_timestamps_become_milliseconds() -> None:
    """0 lets librdkafka set the current time; -1, the millisecond before 1970, means no timestamp."""
    assert times(1_700_000_000_123_999, None, -1_000, 1_000) == [1_700_000_000_123, 0, -1, 1]
    assert times(1_700_000_000_123_000, tz="Europe/Prague") == [1_700_000_000_123]


def test_timestamps_that_librdkafka_cannot_write_become_one(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka replaces 0 by the time of writing, and refuses those before 1970."""
    assert times(1_000, None, 0, 999, -999, -2_000, -1_000, 5_000) == [1, 0, 1, 1, 1, 1, -1, 5]
    [told] = caplog.messages
    assert told == "t: 4 timestamps are out of range, the first 0 ms since 1970; writing 1 ms instead"
    caplog.clear()
    assert times(None, 1_000, -1_000) == [0, 1, -1] and times() == [] and times(None) == [0]
    assert not caplog.messages


def test_negative_timestamps_are_logged_by_topic(caplog: pytest.LogCaptureFixture) -> None:
    time = pa.array([1_000, -2_000], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": ["v", "v"], "topic": ["a", "b"], "timestamp": time})
    assert [record[5] for record in Outgoing(None, True, None, timed=True).records(batch)] == [1, 1]
    assert [told.partition(":")[0] for told in caplog.messages] == ["b"]


# -- stamps


def test_stamps_continue_from_batch_to_batch() -> None:
    ids = Positions(TASK)
    found = [record[4] for _ in range(2) for record in records(ids=ids, value=["v"] * 300)]
    assert found == [[("odradek.id", TASK + at.to_bytes(8, "big"))] for at in range(600)]


def test_former_stamp_is_replaced() -> None:
    headers = pairs([("a", b"1"), ("odradek.id", b"other"), ("b", None)], None)
    found = records(ids=Positions(TASK), value=["v", "v"], headers=headers)
    first, second = ([("odradek.id", TASK + bytes([*[0] * 7, at]))] for at in range(2))
    assert [record[4] for record in found] == [[("a", b"1"), ("b", None), *first], second]


@pytest.mark.parametrize("ids", [["ä", "b"], ["ä".encode(), b"b"]])
def test_ids_of_a_column_are_written_as_stamps(ids: list[Any]) -> None:
    found = records(ids=CarriedIds(), value=["v", "v"], id=ids)
    assert [record[4] for record in found] == [[("odradek.id", "ä".encode())], [("odradek.id", b"b")]]


def test_null_id_is_refused() -> None:
    with pytest.raises(PipelineError, match="null in the column 'id'"):
        records(ids=CarriedIds(), value=["v", "v"], id=["a", None])


# -- the producer's settings


def settings(**kafka: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in kafka.items()}
    return producer_settings.librdkafka({"bootstrap.servers": "127.0.0.1:1", **given})


def test_librdkafka_knows_every_name() -> None:
    """The test's values are valid, too."""
    values: dict[str, str] = {
        "delivery.timeout.ms": "3000",
        "client.dns.lookup": "use_all_dns_ips",
        "compression.type": "zstd",
        "enable.idempotence": "true",
        "enable.metrics.push": "true",
        "metadata.recovery.strategy": "none",
    }
    names = {*producer_settings.SAME, *producer_settings.CONVERTED, *producer_settings.RENAMED} - {
        "acks",
        "bootstrap.servers",
        "max.in.flight.requests.per.connection",
    }
    plain = {name: values.get(name, "2000") for name in names if not name.startswith(producer_settings.SECURITY)}
    producer_settings.checked(settings(**plain))


@pytest.mark.parametrize(
    ("java", "value", "theirs", "becomes"),
    [
        ("buffer.memory", "1048577", "queue.buffering.max.kbytes", "1025"),
        ("max.request.size", "5000", "message.max.bytes", "5000"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("request.timeout.ms", "7000", "socket.timeout.ms", "7000"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("ssl.truststore.location", "ca.pem", "ssl.ca.location", "ca.pem"),
        ("sasl.kerberos.service.name", "kafka", "sasl.kerberos.service.name", "kafka"),
    ],
)
def test_java_settings_are_translated_for_librdkafka(java: str, value: str, theirs: str, becomes: str) -> None:
    assert settings(**{java: value})[theirs] == becomes


def test_compression_level_is_that_of_the_codec_in_use() -> None:
    levels = {"compression.gzip.level": "9", "compression.zstd.level": "3"}
    assert settings(compression_type="zstd", **levels)["compression.level"] == "3"
    assert "compression.level" not in settings(**levels)


def test_jaas_line_becomes_username_and_password() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=line)
    assert (found["sasl.mechanisms"], found["sasl.username"], found["sasl.password"]) == ("PLAIN", "u", "p")
    producer_settings.checked(found)


def test_producer_is_idempotent_with_acks_all() -> None:
    assert settings()["enable.idempotence"] == settings(acks="-1")["enable.idempotence"] == "true"
    assert settings(acks="1")["enable.idempotence"] == "false"
    assert settings(enable_idempotence="false")["enable.idempotence"] == "false"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: settings(max_block_ms="1", transactional_id="x"), "kafka.max.block.ms, kafka.transactional.id"),
        (lambda: settings(buffer_memory="much"), "kafka.buffer.memory"),
        (lambda: producer_settings.checked(settings(acks="seven")), "acks"),
        (lambda: producer_settings.checked(settings(acks="1", enable_idempotence="true")), "acks"),
        (lambda: producer_settings.checked(settings(ssl_no_such="1")), "ssl.no.such"),
    ],
)
def test_invalid_producer_settings_are_refused_in_one_line(wrong: Callable[[], Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        wrong()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
