"""Tables to topics: what librdkafka's consumer finds, and what is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from odradek import arrow
from odradek.arrowtables import client
from odradek.pipeline.writing import producer_settings

from ..clients.admin import create_topic, unique
from ..harness.broker import Broker
from ..harness.process import free_port
from ..pipeline.written import written

live = pytest.mark.live

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VIEWS = pa.large_list(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))
AT = datetime(2026, 11, 28, 12, 0, 0, 5000, UTC)
SPARKS = ("Spark", "kafka.", "odradek.", "option ")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that creates no topics by itself."""
    made = Broker(tmp_path_factory.mktemp("broker"), auto_create_topics_enable="false")
    try:
        yield made.start()
    finally:
        made.close()


class Exports:
    """A frame of another library: it hands out Arrow by the C stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@live
@pytest.mark.smoke
def test_table_is_written_and_read_again(broker: Any) -> None:
    name = create_topic(broker, partitions=3)
    table = pa.table(
        {
            "partition": pa.array([0, 2, 2], pa.int32()),
            "timestamp": pa.array([AT] * 3, pa.timestamp("us", "UTC")),
            "key": pa.array([b"k", None, b""], pa.binary()),
            "value": pa.array([b"v", b"w", None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, [{"key": "h", "value": None}]], PAIRS),
        }
    )
    assert arrow.write(table, name, bootstrap_servers=broker.bootstrap) == 3
    found = arrow.read(name, bootstrap_servers=broker.bootstrap).read_all()
    assert found.select(table.schema.names).to_pylist() == table.to_pylist()
    assert arrow.write(found, name, bootstrap_servers=broker.bootstrap) == 3
    assert len(written(broker, name)) == 6


@live
def test_any_form_of_record_batches_is_written(broker: Any) -> None:
    name = create_topic(broker)
    table = pa.table({"value": ["a", "b"]})
    forms = [
        table,
        table.to_batches()[0],
        table.to_reader(),
        iter(table.to_batches()),
        Exports(table),
        table.cast(pa.schema([("value", pa.large_string())])),
        table.cast(pa.schema([("value", pa.string_view())])),
    ]
    counts = [arrow.write(form, name, bootstrap_servers=broker.bootstrap, compression_type="lz4") for form in forms]
    assert counts == [2] * len(forms)
    assert [one.value for one in written(broker, name)] == [b"a", b"b"] * len(forms)


@live
@pytest.mark.parametrize("kind", [pa.large_list(PAIRS.value_type), VIEWS, pa.null()])
def test_headers_of_other_libraries_are_written(broker: Any, kind: pa.DataType) -> None:
    """Polars has large lists of views, and pandas no type where all are null."""
    name = create_topic(broker)
    pairs = None if pa.types.is_null(kind) else [{"key": "h", "value": b"1"}]
    table = pa.table({"value": ["a"], "headers": pa.array([pairs], kind)})
    assert arrow.write(table, name, bootstrap_servers=broker.bootstrap) == 1
    found = arrow.read(name, columns=["headers"], bootstrap_servers=broker.bootstrap).read_all()
    assert found.to_pylist() == [{"headers": pairs}]


def test_writer_waits_for_all_replicas_and_is_idempotent() -> None:
    found = producer_settings.librdkafka(client.settings("h:1", {}))
    assert (found["acks"], found["enable.idempotence"]) == ("all", "true")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": ["a"]}, "the column 'value' is required"),
        ({"value": ["a"], "amount": [1]}, "the column 'amount' is none of a record's: key, value, headers, "),
        ({"value": [1]}, "the column 'value' has type int64 but must be string or binary"),
        ({"value": [{"id": 1}]}, "the column 'value' has type struct<id: int64> but must be string or binary"),
        ({"value": ["a"], "partition": ["0"]}, "the column 'partition' has type string but must be an integer"),
        ({"value": ["a"], "timestamp": [5]}, "the column 'timestamp' has type int64 but must be a timestamp"),
        ({"value": ["a"], "headers": [["h"]]}, "the column 'headers' has type list<"),
    ],
)  # fmt: skip
def test_table_that_cannot_be_written_is_refused(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(arrow.OptionError, match=told):
        arrow.write(pa.table(columns), "t", bootstrap_servers="h:1")


@pytest.mark.parametrize("data", [None, 7, ["a"], []])
def test_data_that_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(arrow.OptionError, match=f"^data is {type(data).__name__}: it must be a table"):
        arrow.write(data, "t", bootstrap_servers="h:1")


@live
@pytest.mark.parametrize(
    ("columns", "settings", "told"),
    [
        ({"value": ["a"], "partition": [7]}, {}, "-7: _UNKNOWN_PARTITION"),
        ({"value": ["a"], "partition": [-1]}, {}, "^partition -1 present in the data"),
        ({"value": ["a" * 2_000_000]}, {}, "MSG_SIZE_TOO_LARGE"),
        ({"value": ["a"]}, {"acks": "some"}, "acks"),
        ({"value": ["a"]}, {"linger_ns": 1}, "unknown producer setting linger.ns"),
    ],
)
def test_record_or_setting_that_is_refused_is_told_in_one_line(
    broker: Any, columns: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    name = create_topic(broker)
    with pytest.raises(arrow.PipelineError, match=told) as raised:
        arrow.write(pa.table(columns), name, bootstrap_servers=broker.bootstrap, **settings)
    check(raised)
    assert written(broker, name) == []


@live
def test_topic_that_no_broker_makes_is_told_in_one_line(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.pipeline.writing.destination.APPEAR_SECONDS", 0.2)
    with pytest.raises(arrow.UnknownTopic, match=r"^topic nowhere-.* does not exist") as raised:
        arrow.write(pa.table({"value": ["a"]}), unique("nowhere"), bootstrap_servers=broker.bootstrap)
    check(raised)


def test_wrong_address_is_told_at_once() -> None:
    port = free_port()
    with pytest.raises(arrow.PipelineError, match=rf"^no broker responds: 127\.0\.0\.1:{port}: Connection refused$"):
        arrow.write(pa.table({"value": ["a"]}), "t", bootstrap_servers=f"127.0.0.1:{port}")


def check(raised: pytest.ExceptionInfo[arrow.PipelineError]) -> None:
    text = str(raised.value)
    assert "\n" not in text
    assert not [word for word in SPARKS if word in text], text
