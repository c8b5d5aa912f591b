"""Retention overtakes a slow stream: the error names the deleted offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...clients.admin import create_topic
from ...clients.raw.calls import list_offsets
from ...clients.transactions import await_stable
from ...harness.broker import Broker
from ...harness.process import wait_until
from ..frames import drain, load
from . import stream
from .checker import compare, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

EARLIEST = -2
READ, UNREAD = 50, 3000
RETAINED = 20_000  # bytes


def test_offsets_deleted_by_retention_are_named(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The stream stops, or continues without them; exactly these offsets are lost."""
    source = create_topic(broker, segment_bytes=10_000, retention_bytes=RETAINED)
    target = create_topic(broker)
    sink = {"format": "odradek", "kafka.bootstrap.servers": broker.bootstrap, "topic": target}
    sink |= {"odradek.transactional": "true"}

    def run(fail: str) -> None:
        options: dict[str, Any] = {"subscribe": source, "startingOffsets": "earliest", "failOnDataLoss": fail}
        drain(load(spark.readStream, broker, "odradek", **options).select("key", "value"), tmp_path, **sink)

    sent = stream.feed(broker, source, range(READ), 1)
    run("true")
    sent += stream.feed(broker, source, range(READ, READ + UNREAD), 1)
    first = overtaken(broker, source)
    gone = f"{source}-0: offsets 50 to {first - 1} are gone; the log starts at {first}"
    with pytest.raises(Exception, match=gone):
        run("true")
    run("false")
    await_stable(broker, target)
    assert compare(sent, ids(broker, target)) == (tuple(sent[READ:first]), (), ())


def overtaken(broker: Broker, topic: str) -> int:
    """The log start offset after retention has finished, in one step or in several."""

    def settled() -> int:
        with broker.wire() as wire:
            first = int(list_offsets(wire, topic, EARLIEST).offset)
        segments = Path(broker.data_dir, f"{topic}-0").glob("*.log")
        try:
            rest = sum(path.stat().st_size for path in segments if int(path.stem) > first)  # without the oldest segment
        except FileNotFoundError:  # removed in between
            return 0
        return first if first > READ and rest < RETAINED else 0

    return int(wait_until(settled, 60, f"retention of {topic}"))
