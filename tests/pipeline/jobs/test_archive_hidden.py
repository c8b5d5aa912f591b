"""A continuous archive by pattern, while stale metadata of brokers lacks a topic."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs.archive.job import Job

from ...clients.admin import create_topic, unique
from ...harness.process import wait_until
from ..hidden import Hiding, hidden
from ..stand_in import METADATA, StandIn
from ..topics import WAIT, Sent, send
from .archives import assert_whole, ids
from .test_archive import is_visible, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

ROUNDS = 3
LONG = 3 * WAIT  # seconds: a batch in Spark may take some seconds


class Topics:
    """Two topics of one pattern, and the records that were sent to them."""

    def __init__(self, spark: SparkSession, broker: Any, folder: Path) -> None:
        self._spark, self._broker, self._folder = spark, broker, folder
        self.stem = unique("hidden")
        self.sent: dict[str, list[Sent]] = {create_topic(broker, self.stem): [] for _ in range(2)}

    def send(self, *topics: str) -> None:
        """Send records, and wait until they are archived."""
        for topic in topics:
            self.sent[topic] += send(self._broker, topic, range(5))
        for topic in topics:
            archived = partial(is_visible, self._spark, self._folder, topic, ids(self.sent[topic]))
            wait_until(archived, LONG, f"{topic} is archived")


def test_topic_missing_in_metadata_is_archived_later(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    """First all responses lack it, while the other topic is archived; then every third response."""
    topics = Topics(spark, broker, tmp_path)
    one, other = topics.sent
    with StandIn(broker.bootstrap) as stand_in:
        source = {"kafka.bootstrap.servers": stand_in.bootstrap, "subscribePattern": topics.stem}
        source |= {"failOnDataLoss": "false", "odradek.local": "off", "kafka.retry.backoff.ms": "50"}
        with running(spark, tmp_path, Job(source, continuous=True, trigger_ms=0)):
            topics.send(one, other)
            with hidden(stand_in, one):
                topics.send(other)
                topics.send(other)
            topics.send(one)
            stand_in.lies[METADATA] = lie = Hiding(one, lambda number: number % 3 == 0)
            for _ in range(ROUNDS):
                topics.send(one, other)
    assert lie.hidden >= ROUNDS
    for topic, sent in topics.sent.items():
        assert assert_whole(spark, tmp_path, topic, ids(sent)).skipped == {}
