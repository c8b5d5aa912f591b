"""Structured Streaming's progress reports of our source: rows, rates and lag."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..clients.admin import create_topic
from .frames import load
from .topics import WAIT, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

ROWS, LIMIT = 60, 20
Progress = dict[str, Any]


def batches(spark: SparkSession, broker: Any, topic: str, folder: Path) -> list[Progress]:
    """The reports of a stream that reads all available records, as a listener or the event log has them."""
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": LIMIT}
    frame = load(spark.readStream, broker, "odradek", **options)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(2 * WAIT)
        return [found for one in query.recentProgress if (found := json.loads(one.json))["numInputRows"]]
    finally:
        query.stop()


def total(offsets: Any) -> int:
    """The sum over all partitions; Spark's JSON has offsets as a nested object or as a string."""
    nested = json.loads(offsets) if isinstance(offsets, str) else offsets
    return sum(offset for topic in nested.values() for offset in topic.values())


def rate(seconds: float) -> Any:
    """The rate of a batch; Spark's JSON has tenths."""
    return pytest.approx(LIMIT / seconds, rel=0.01, abs=0.06)


def test_progress_has_rows_rates_and_lag(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    topic = create_topic(broker, partitions=2)
    send(broker, topic, range(ROWS), 2)
    found = batches(spark, broker, topic, tmp_path)
    assert [(one["numInputRows"], one["sources"][0]["numInputRows"]) for one in found] == 3 * [(LIMIT, LIMIT)]
    behind = [total(one["sources"][0]["latestOffset"]) - total(one["sources"][0]["endOffset"]) for one in found]
    assert behind == [40, 20, 0]
    for one in found:
        processed = rate(one["batchDuration"] / 1000)
        assert one["processedRowsPerSecond"] == one["sources"][0]["processedRowsPerSecond"] == processed
    for last, one in pairwise(found):
        seconds = (datetime.fromisoformat(one["timestamp"]) - datetime.fromisoformat(last["timestamp"])).total_seconds()
        assert one["inputRowsPerSecond"] == one["sources"][0]["inputRowsPerSecond"] == rate(seconds)
