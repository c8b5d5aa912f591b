"""A batch is done again when others lead: of what it reads, of what it writes, of its transactions and its notes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.writing.transactions import PREFIX

from ...cluster.clients import coordinator, make_topic
from ...harness.cluster import Cluster
from . import stream
from .checker import assert_accounted
from .redone import ROWS, read, redone, written
from .test_brokers import INTERNAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]

GROUP, TRANSACTION = 0, 1  # what is coordinated


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), transaction_state_log_min_isr=2, **INTERNAL) as running:
        yield running


class Moving:
    """Kills the one that leads, each time of something else; the one that was killed before is back by then."""

    def __init__(self, cluster: Cluster, source: str, target: str, folder: Path) -> None:
        self._cluster, self._source, self._target, self._folder = cluster, source, target, folder
        self.dead: int | None = None

    def __call__(self, effect: str) -> None:
        self.end()
        self.dead = {
            "begun": partial(self._cluster.leader, self._source, 1),
            "sent": partial(coordinator, self._cluster, self._unit, TRANSACTION),
            "committed": partial(coordinator, self._cluster, self._unit, GROUP),
            "told": partial(self._cluster.leader, self._target),
        }[effect]()
        self._cluster.kill(self.dead)
        for topic in (self._source, self._target):
            for partition in range(2):
                assert self._cluster.wait_leader(topic, partition, other_than=self.dead) != self.dead

    def end(self) -> None:
        """All are there again."""
        if self.dead is not None:
            self._cluster.restart(self.dead)
            for topic in (self._source, self._target):
                for partition in range(2):
                    self._cluster.wait_isr(topic, partition, 3)
        self.dead = None

    @property
    def _unit(self) -> str:
        """What the second task of the query writes under."""
        return f"{PREFIX}{json.loads((self._folder / 'checkpoint/metadata').read_text())['id']}-1"


def test_others_lead(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    source, target = make_topic(cluster, 2), make_topic(cluster, 2)
    sent = stream.feed(cluster, source, range(ROWS), 2)
    moving = Moving(cluster, source, target, tmp_path)

    def start() -> StreamingQuery:
        return written(read(spark, cluster, source, **{"odradek.local": "off"}), cluster, target, tmp_path)

    redone(spark, tmp_path, start, moving)
    moving.end()
    assert_accounted(cluster, sent, target)
