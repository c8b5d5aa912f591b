"""A stream that dies in its very first batch reads it again: it has no offset of a batch before to begin at."""

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
    """What a driver leaves that dies before the sink has anything of it."""
    for name in ("checkpoint/commits", "table"):
        shutil.rmtree(folder / name)


def test_the_first_batch_again(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """It ends where it ended, though there is more now; the next one, of the same run, goes on there."""
    topic = create_topic(broker, partitions=2)
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    frame = load(spark.readStream, broker, "odradek", subscribe=topic, startingOffsets="earliest")
    sent = send(broker, topic, range(20), 2)
    assert drain(frame, tmp_path, **sink) == [20]
    forget_first_batch(tmp_path)
    sent += send(broker, topic, range(20, 30), 2)
    assert drain(frame, tmp_path, **sink) == [20, 10]
    assert rows(spark.read.parquet(str(tmp_path / "table"))) == sorted(sent, key=lambda one: one[2:5])


def test_from_now_on_and_again(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """Where it began is noted by its group."""
    topic = create_topic(broker)
    sink = {"format": "parquet", "path": str(tmp_path / "table")}
    frame = load(spark.readStream, broker, "odradek", subscribe=topic, startingOffsets="latest", **GROUP)
    send(broker, topic, range(20))
    assert drain(frame, tmp_path, **sink) == []
    forget_first_batch(tmp_path)
    sent = send(broker, topic, range(20, 30))
    assert drain(frame, tmp_path, **sink) == [10]
    assert rows(spark.read.parquet(str(tmp_path / "table"))) == sent
