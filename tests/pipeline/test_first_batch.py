"""A stream that dies in its first batch reads it again, though no former batch has its start offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..clients.admin import create_topic
from .frames import drain, load, rows
from .topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


GROUP = {"odradek.commit.group": "of-a-first-batch"}


def forget_first_batch(folder: Path) -> None:
    """Leave the state of a driver that died before the sink had any record."""
    for name in ("checkpoint/commits", "table"):
        shutil.rmtree(folder / name)


def test_repeated_first_batch_ends_at_the_same_offsets(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """New records do not change it; the next batch of the same run continues there."""
    topic = create_topic(broker, partitions=2)
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    frame = load(spark.readStream, broker, "odradek", subscribe=topic, startingOffsets="earliest")
    sent = send(broker, topic, range(20), 2)
    assert drain(frame, tmp_path, **sink) == [20]
    forget_first_batch(tmp_path)
    sent += send(broker, topic, range(20, 30), 2)
    assert drain(frame, tmp_path, **sink) == [20, 10]
    assert rows(spark.read.parquet(str(tmp_path / "table"))) == sorted(sent, key=lambda one: one[2:5])


def test_repeated_first_batch_of_a_latest_stream_keeps_its_start(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """The group's committed offsets keep the start."""
    topic = create_topic(broker)
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    frame = load(spark.readStream, broker, "odradek", subscribe=topic, startingOffsets="latest", **GROUP)
    send(broker, topic, range(20))
    assert drain(frame, tmp_path, **sink) == []
    forget_first_batch(tmp_path)
    sent = send(broker, topic, range(20, 30))
    assert drain(frame, tmp_path, **sink) == [10]
    assert rows(spark.read.parquet(str(tmp_path / "table"))) == sent
