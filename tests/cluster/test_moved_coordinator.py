"""The coordinator moves while a member's rebalance callback runs, so that the old one gets the OffsetFetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.groups.records import partition_for

from ..harness.cluster import Cluster
from ..harness.process import wait_until
from ..harness.wire import Wire
from .chaos.admin_requests import PREFERRED, elect, reassign
from .chaos.readers import Commits, Member, _Reader
from .chaos.security import Clients
from .chaos.stuck import Place, explain
from .clients import coordinator, make_topic

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

OFFSETS, PARTITIONS = "__consumer_offsets", 4  # by the harness
RECORDS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("moved")) as running:
        coordinator(running, "any")  # this creates the topic
        for partition in range(PARTITIONS):
            running.wait_isr(OFFSETS, partition, 3)
        yield running


class Moved(Member):
    """A member whose coordinator moves once, in its first rebalance callback."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(Clients.of(cluster.bootstrap), topic, 1, Commits())
        self._cluster, self.moved = cluster, False

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        if not self.moved:
            move(self._cluster, self.group)
            self.moved = True

    @property
    def read(self) -> int:
        """The number of records that it has read."""
        return len(self.rows[0])


class Stuck(Moved):
    """It does not assign its partitions again."""

    def _take(self, message: Any) -> None:
        _Reader._take(self, message)


def move(cluster: Cluster, group: str) -> None:
    """Move the group's coordinator to the next broker; returns when the old one refuses its requests."""
    old, at = coordinator(cluster, group), (OFFSETS, partition_for(group, PARTITIONS))
    replicas = [(old + step) % len(cluster.brokers) for step in (1, 2, 0)]
    wait_until(lambda: anywhere(cluster, lambda wire: reassign(wire, {at: replicas})), 30, "the order is accepted")
    wait_until(lambda: anywhere(cluster, lambda wire: elect(wire, PREFERRED, [at])), 30, "the leader is elected")
    coordinator(cluster, group, other_than=old, of=[cluster.broker(old)])


def anywhere(cluster: Cluster, request: Callable[[Wire], list[int]]) -> bool:
    """Whether a broker, the controller, carries out a request without an error."""
    for broker in cluster.running():
        with broker.wire() as wire:
            if not any(request(wire)):
                return True
    return False


def filled(cluster: Cluster) -> str:
    """A topic of one partition with records as readers expect them."""
    from confluent_kafka import Producer

    topic = make_topic(cluster, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"0 %d" % number, b"key")
    assert producer.flush(60) == 0
    return topic


def test_member_reads_on_when_its_coordinator_moves_before_it_has_its_offsets(cluster: Cluster) -> None:
    member = Moved(cluster, filled(cluster))
    member.start()
    try:
        wait_until(lambda: member.read >= RECORDS, 60, "all records")
    finally:
        member.stop()
    assert (member.moved, member.problems) == (True, [])
    assert member.errors["NOT_COORDINATOR"] > 0, "the old coordinator did not get the OffsetFetch"


def test_partition_that_nothing_reads_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    """Without the new assignment the member waits for ever: what it waits for and what brokers answer are named."""
    member = Stuck(cluster, filled(cluster))
    member.start()
    try:
        wait_until(lambda: member.errors["NOT_COORDINATOR"], 60, "the error of the OffsetFetch")
        place = Place(member.topic, member.group, 0, 0)
        wait_until(lambda: "join_state steady" in explain({}, place, [member.recorder]), 30, "statistics")
        wires = {number: partial(Wire, broker.bootstrap) for number, broker in enumerate(cluster.brokers)}
        text = explain(wires, place, [member.recorder])
    finally:
        member.stop()
    assert member.read == 0
    assert "fetch_state none" in text and "1 offset queries" in text, text
    for number in wires:
        lines = [line for line in text.splitlines() if f"broker {number}: " in line]
        assert [line.split(": ")[1] for line in lines] == ["Metadata", "OffsetFetch", "OffsetForLeaderEpoch", "Fetch"]
    assert f"high watermark {RECORDS}, log start 0" in text
