"""A cluster of three brokers goes from a released version to this tree and back, broker by broker, under load.

Of each three brokers one is stopped and started, one is killed and started, one runs `odradek upgrade`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ..cluster.clients import Commits, Feed, Observer, make_topic, read_all, running
from ..cluster.replicas import differences
from ..cluster.test_transactions_in_a_cluster import INTERNAL, PARTITIONS, Copier, Reader, committed, in_sync
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .contents import Metadata
from .released import HERE, install, upgrade

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]

MORE = 30  # records of each partition between two steps
SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "transaction_state_log_min_isr": 2,
    "transaction_state_log_num_partitions": 4,
    "replica_lag_time_max_ms": 3000,
}


@pytest.fixture
def cluster(tmp_path: Path, released: Path) -> Iterator[Cluster]:
    """All brokers run the released version."""
    made = Cluster(tmp_path, **SETTINGS)
    for broker in made.brokers:
        install(broker, released)
    with made as started:
        yield started


class Load(NamedTuple):
    """Records of an idempotent producer, which transactions copy to another topic with the offsets of a group."""

    cluster: Cluster
    source: str
    target: str
    feed: Feed
    copier: Copier
    reader: Reader
    observer: Observer
    commits: Commits

    @classmethod
    def of(cls, cluster: Cluster) -> Load:
        source, target = make_topic(cluster, PARTITIONS), make_topic(cluster, PARTITIONS)
        commits = Commits()
        return cls(
            cluster, source, target, Feed(cluster, source, PARTITIONS), Copier(cluster, source, target, "copier"),
            Reader(cluster, target), Observer(cluster, source, "copier", commits, PARTITIONS), commits,
        )  # fmt: skip

    def settle(self) -> None:
        """Wait until all replicas of all topics are in sync."""
        in_sync(self.cluster, self.source, self.target, *INTERNAL)

    def await_more(self) -> None:
        """Wait until each partition has more acknowledged records, and more transactions are committed."""
        before, transactions = self._acked(), self.copier.committed
        wait_until(lambda: self._is_ahead(before), 60, "more acknowledged records in each partition")
        wait_until(lambda: self.copier.committed > transactions + 2, 60, "more committed transactions")

    def _acked(self) -> Counter[int]:
        return Counter(number % PARTITIONS for number in self.feed.acked.copy())

    def _is_ahead(self, before: Counter[int]) -> bool:
        now = self._acked()
        return all(now[partition] >= before[partition] + MORE for partition in range(PARTITIONS))

    def finish(self) -> None:
        """End the load: all that was acknowledged was copied once."""
        self.feed.stop()
        wait_until(lambda: self.feed.acked <= self.reader.seen.keys(), 90, "all records are copied")

    def verify(self) -> None:
        """After the end."""
        assert self.feed.errors == []
        assert self.commits.faults == [] and self.observer.answers > 0
        assert self.reader.seen == Counter(dict.fromkeys(self.feed.acked, 1)), f"aborted: {self.copier.aborted}"
        assert committed(self.cluster, "copier", self.source) == len(self.feed.acked)
        for numbers in read_all(self.cluster, self.source, PARTITIONS).values():
            assert numbers == sorted(set(numbers))
        for topic in (self.source, self.target):
            wait_until(lambda: not self._apart(topic), 60, f"all replicas of {topic} are the same")  # noqa: B023

    def _apart(self, topic: str) -> list[str]:
        return [line for partition in range(PARTITIONS) for line in differences(self.cluster, topic, partition)]


def by_stop(load: Load, number: int, code: Path) -> None:
    """The others serve all partitions meanwhile."""
    broker = load.cluster.brokers[number]
    broker.stop()
    install(broker, code)
    load.await_more()
    broker.start()


def by_kill(load: Load, number: int, code: Path) -> None:
    """It starts again at once."""
    broker = load.cluster.brokers[number]
    broker.kill()
    install(broker, code)
    broker.start()


def in_place(load: Load, number: int, code: Path) -> None:
    """Where processes of both versions cannot run side by side, it is stopped as the command says."""
    if not upgrade(load.cluster.brokers[number], code):
        by_stop(load, number, code)


Way = Callable[[Load, int, Path], None]
UP: tuple[Way, ...] = (by_stop, by_kill, in_place)
DOWN: tuple[Way, ...] = (in_place, by_stop, by_kill)


def roll(load: Load, ways: tuple[Way, ...], code: Path) -> None:
    for number, way in enumerate(ways):
        way(load, number, code)
        load.settle()
        load.await_more()


def test_cluster_goes_to_this_tree_and_back_under_load(cluster: Cluster, released: Path) -> None:
    """Nothing is lost, doubled or out of order; both versions read what clients set while the other one ran."""
    load, metadata = Load.of(cluster), Metadata(cluster.brokers[0], 3)
    load.settle()
    with running(load.observer, load.reader, load.copier, load.feed):
        load.await_more()
        for ways, code in ((UP, HERE), (DOWN, released)):
            metadata.add(cluster.brokers[0])
            roll(load, ways, code)
            for broker in cluster.brokers:
                metadata.verify(broker)
        load.finish()
    load.verify()
    assert ["Traceback" in broker.log for broker in cluster.brokers] == [False] * 3
