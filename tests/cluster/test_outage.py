"""ZooKeeper is away for a moment: who changes the metadata then waits for it, as with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from odradek.broker.outage import CHANGES, MOST, PATIENCE_S, Outage

from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper

CREATE_TOPICS, UPDATE_METADATA = 19, 6


class Scene:
    """An outage with a clock of its own, and what was served in which order."""

    def __init__(self) -> None:
        self.there, self.now = False, 0.0
        self.served: list[int] = []
        self.outage = Outage(lambda: self.there, lambda: self.now)

    def take(self, key: int, number: int) -> None:
        self.outage.take(key, lambda: self.served.append(number))


def test_changes_wait_for_the_connection_in_order() -> None:
    scene = Scene()
    for number, key in enumerate(sorted(CHANGES)):
        scene.take(key, number)
    scene.outage.tick()
    assert scene.served == []
    scene.there = True
    scene.take(CREATE_TOPICS, 99)  # behind those that came before
    scene.outage.tick()
    assert scene.served == [*range(len(CHANGES)), 99]


def test_orders_do_not_wait() -> None:
    scene = Scene()
    scene.take(CREATE_TOPICS, 1)
    scene.take(UPDATE_METADATA, 2)
    assert scene.served == [2]


def test_nobody_waits_for_ever() -> None:
    scene = Scene()
    scene.take(CREATE_TOPICS, 1)
    scene.now = PATIENCE_S / 2
    scene.take(CREATE_TOPICS, 2)
    scene.now = PATIENCE_S
    scene.outage.tick()
    assert scene.served == [1]


def test_no_more_wait_than_there_is_room_for() -> None:
    scene = Scene()
    for number in range(MOST + 1):
        scene.take(CREATE_TOPICS, number)
    assert scene.served == [MOST]


@pytest.fixture
def broker(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "broker", broker_id=0, zookeeper_connect=zookeeper.connect)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(120)
def test_a_topic_that_is_asked_for_in_an_outage_is_made_after_it(zookeeper: ZooKeeper, broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=20).controller_id == 0, 30, "a controller")
    zookeeper.kill()
    wait_until(lambda: "the connection to ZooKeeper is lost" in broker.log, 30, "the broker to notice")
    asked = admin.create_topics([NewTopic("late", 1, 1)])["late"]  # a future
    zookeeper.start()
    assert asked.result(60) is None
    assert "late" in admin.list_topics(timeout=20).topics
