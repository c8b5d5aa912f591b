"""Load of a cluster whose brokers get other code: what it must keep is judged at the end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from ..clients.admin import unique
from ..cluster.clients import Commits, Feed, Observer, make_topic, read_all, running
from ..cluster.replicas import differences
from ..cluster.test_transactions_in_a_cluster import INTERNAL, PARTITIONS, Copier, Reader, committed, in_sync
from ..harness.cluster import Cluster
from ..harness.process import wait_until

MORE = 30  # records of each partition between two steps
LONG_S = 180  # faults heal meanwhile
STUCK_S = 60


class PatientCopier(Copier):
    """Several errors may follow each other while faults strike."""

    sends_offsets_since = math.inf
    """Monotonic seconds."""

    def _send_offsets(self, offsets: list[TopicPartition]) -> None:
        self.sends_offsets_since = time.monotonic()
        try:
            super()._send_offsets(offsets)
        finally:
            self.sends_offsets_since = math.inf

    def _recover(self, exception: KafkaException) -> None:
        while not self._over.is_set():
            try:
                return super()._recover(exception)
            except KafkaException as another:
                exception = another


class Load(NamedTuple):
    """Records of an idempotent producer, which transactions copy to another topic with the offsets of a group."""

    cluster: Cluster
    source: str
    target: str
    feed: Feed
    copier: PatientCopier
    reader: Reader
    observer: Observer
    commits: Commits
    group: str

    @classmethod
    def of(cls, cluster: Cluster, **options: Any) -> Load:
        """`options` are those of the producer."""
        source, target = make_topic(cluster, PARTITIONS), make_topic(cluster, PARTITIONS)
        commits, group = Commits(), unique("copier")
        return cls(
            cluster, source, target, Feed(cluster, source, PARTITIONS, **options),
            PatientCopier(cluster, source, target, group), Reader(cluster, target),
            Observer(cluster, source, group, commits, PARTITIONS), commits, group,
        )  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load over the block."""
        with running(self.observer, self.reader, self.copier, self.feed):
            self.await_more()
            yield
            self._finish()

    def settle(self) -> None:
        """Wait until all replicas of all topics are in sync."""
        in_sync(self.cluster, self.source, self.target, *INTERNAL)

    def await_more(self) -> None:
        """Wait until each partition has more acknowledged records, and more transactions are committed."""
        before, transactions = self._acked(), self.copier.committed
        wait_until(lambda: self._is_ahead(before), LONG_S, "more acknowledged records in each partition")
        self._await_copier(lambda: self.copier.committed > transactions + 2, "more committed transactions")

    def _acked(self) -> Counter[int]:
        return Counter(number % PARTITIONS for number in self.feed.acked.copy())

    def _is_ahead(self, before: Counter[int]) -> bool:
        now = self._acked()
        return all(now[partition] >= before[partition] + MORE for partition in range(PARTITIONS))

    def _finish(self) -> None:
        """End the load: all that was acknowledged was copied once."""
        self.feed.stop()
        self._await_copier(lambda: self.feed.acked <= self.reader.seen.keys(), "all records are copied")

    def _await_copier(self, condition: Callable[[], bool], what: str) -> None:
        """librdkafka does not keep the time limit of `send_offsets_to_transaction`, but may wait until the state of a
        broker changes (its issues 5456 and 5511). So one is restarted where the copier is in there for too long."""
        for broker in self.cluster.brokers:
            if wait_until(condition, STUCK_S, what, fail=False):
                return
            if time.monotonic() - self.copier.sends_offsets_since < STUCK_S / 2:
                break
            print(f"librdkafka has sent no offsets for {STUCK_S} s: {broker.folder.name} starts again", flush=True)
            broker.stop()
            broker.start()
        wait_until(condition, LONG_S, what)

    def verify(self) -> None:
        """After the end."""
        assert self.feed.errors == []
        assert self.commits.faults == [] and self.observer.answers > 0
        assert self.reader.seen == Counter(dict.fromkeys(self.feed.acked, 1)), f"aborted: {self.copier.aborted}"
        assert committed(self.cluster, self.group, self.source) == len(self.feed.acked)
        for numbers in read_all(self.cluster, self.source, PARTITIONS).values():
            assert numbers == sorted(set(numbers))

    def await_same_replicas(self) -> None:
        """Wait until the files of all brokers are the same; the tests' process must see them."""
        wait_until(lambda: not self._apart(), 60, "all replicas are the same")

    def _apart(self) -> list[str]:
        topics = (self.source, self.target)
        return [
            line for topic in topics for index in range(PARTITIONS) for line in differences(self.cluster, topic, index)
        ]
