"""The librdkafka consumer that `verify` reads a log with, without Spark."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.pipeline.errors import DataLoss, MissingOffsets, Unreadable
from odradek.pipeline.jobs.archive.verify import consuming
from odradek.pipeline.types import Range

from ...clients.admin import create_topic
from ...clients.raw.batches import batch, record
from ...clients.raw.calls import produce
from ..test_fetching import fill
from ..test_source import delete_before
from ..topics import NOW, WAIT

pytestmark = pytest.mark.live

SECONDS = 3  # the timeout without progress


def consumed(broker: Any, topic: str, start: int, end: int) -> list[dict[str, Any]]:
    settings = consuming._settings({"bootstrap.servers": broker.bootstrap, "isolation.level": "read_committed"})
    step = consuming._Consuming([Range(topic, 0, start, end)], settings, SECONDS)
    return [row for batch in step._read(step.pieces[0]) for row in batch.to_pylist()]


def test_range_is_consumed_with_all_fields(broker: Any) -> None:
    topic = create_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        headers: list[tuple[str, str | bytes | None]] = [("h", b"%d" % number), ("none", None)]
        producer.produce(topic, b"%d" % number, None, 0, timestamp=NOW + number, headers=headers[: number % 3])
    assert not producer.flush(WAIT)
    found = consumed(broker, topic, 5, 15)
    assert [row["offset"] for row in found] == list(range(5, 15))
    assert [row["value"] for row in found] == [b"%d" % number for number in range(5, 15)]
    assert found[0]["headers"] == [{"key": "h", "value": b"5"}, {"key": "none", "value": None}]
    assert found[1]["headers"] is None
    assert {row["timestampType"] for row in found} == {0}
    assert int(found[0]["timestamp"].timestamp() * 1000) == NOW + 5


def test_deleted_offsets_are_data_loss(broker: Any) -> None:
    topic = create_topic(broker, partitions=2)
    fill(broker, topic, 5)
    delete_before(broker, topic, 5)
    with pytest.raises(DataLoss, match=f"^{topic}-0: "):
        consumed(broker, topic, 0, 10)


def test_missing_offsets_are_an_error_after_the_timeout(broker: Any) -> None:
    """No batch arrives although offsets are expected."""
    topic = create_topic(broker)
    fill(broker, topic, 20)
    assert len(consumed(broker, topic, 0, 60)) == 60
    with pytest.raises(MissingOffsets, match=f"^{topic}-0: the leader sends no batch with offsets 60 to 69"):
        consumed(broker, topic, 0, 70)


def test_header_names_that_are_not_utf_8_are_an_error(broker: Any) -> None:
    """Each attempt fails with one line; none ends the process."""
    topic = create_topic(broker)
    fill(broker, topic, 5)
    body = record(0, b"v", headers=[("??", b"h")]).replace(b"??", b"\xff\xfe")
    with broker.wire() as wire:
        assert produce(wire, topic, batch([b"v"], payload=body)).error_code == 0
    for _ in range(3):
        with pytest.raises(Unreadable, match=f"^{topic}-0: headers at offset 15: 'utf-8' codec can't decode byte 0xff"):
            consumed(broker, topic, 0, 16)
        gc.collect()
