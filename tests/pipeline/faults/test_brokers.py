"""A stream between topics of three brokers, during kills of a broker's worker, of a broker, and of Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from ...cluster.clients import make_topic
from ...harness.cluster import Cluster
from ...harness.process import wait_until
from . import stream
from .checker import assert_each_once
from .stream import Stream

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

PARTITIONS = 2
INTERNAL = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


class Running:
    """A running stream, and all ids that were fed to it."""

    def __init__(self, cluster: Cluster, query: Stream, source: str) -> None:
        self.cluster, self.query, self.source = cluster, query, source
        self.sent: list[str] = []
        self._numbers = count()

    def feed(self, rows: int) -> None:
        numbers = [next(self._numbers) for _ in range(rows)]
        self.sent += stream.feed(self.cluster, self.source, numbers, PARTITIONS)

    def assert_each_row_once(self) -> None:
        """New and former rows arrive, each once."""
        self.feed(200)
        self.query.await_rows(len(self.sent))
        assert_each_once(self.cluster, self.query.target, self.sent)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), transaction_state_log_min_isr=2, **INTERNAL) as running:
        yield running


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    source, target = make_topic(cluster, PARTITIONS), make_topic(cluster, PARTITIONS)
    with stream.opened(Stream(tmp_path_factory.mktemp("query"), cluster, source, target)) as query:
        made = Running(cluster, query, source)
        made.assert_each_row_once()
        yield made
        query.finish()
        assert_each_once(cluster, target, made.sent)


def test_stream_survives_the_kill_of_a_broker_worker(running: Running) -> None:
    """The killed worker belongs to the leader of a partition of the target."""
    broker = running.cluster.broker(running.cluster.leader(running.query.target))
    running.feed(1000)
    dead = broker.kill_role("worker")
    running.feed(200)
    broker.await_respawn("worker", dead)
    running.assert_each_row_once()


def test_stream_survives_kills_of_spark_workers(running: Running) -> None:
    """At random moments, between tasks or within one; `test_deaths` chooses the moment."""
    for _ in range(3):
        running.feed(500)
        wait_until(running.query.kill_workers, 60, "there is a worker to kill")
    running.assert_each_row_once()


def test_stream_survives_the_kill_of_a_broker(running: Running) -> None:
    """Afterwards partitions have new leaders, groups and transactions have new coordinators."""
    victim = running.cluster.leader(running.query.target)
    running.feed(500)
    running.cluster.kill(victim)
    running.feed(500)
    running.cluster.wait_leader(running.query.target, other_than=victim)
    running.assert_each_row_once()
    running.cluster.restart(victim)
    running.assert_each_row_once()
