"""The plan that a restore stores before its first step and reads after a restart, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.archive.store.manifest import State
from odradek.pipeline.jobs.restore import restoring
from odradek.pipeline.jobs.restore.restoring import Plan, RestorePlan
from odradek.pipeline.types import Partition
from odradek.pipeline.wire.brokers import Brokers

from ...clients.admin import unique
from ...harness.process import wait_until
from ..topics import WAIT, send

pytestmark = pytest.mark.live


@pytest.fixture
def brokers(broker: Any) -> Iterator[Brokers]:
    with Brokers(client(broker)) as made:
        yield made


def client(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


def prepared(brokers: Brokers, broker: Any, topic: str, ends: list[int], **wish: Any) -> Plan:
    """The plan for an archive that ends at these offsets."""
    state = State(offsets={(topic, index): end for index, end in enumerate(ends)})
    return restoring.prepare(brokers, client(broker), "file:/archive", state, RestorePlan(**wish), topic)


def widened(brokers: Brokers, broker: Any, topic: str, partitions: int) -> None:
    client_ = AdminClient({"bootstrap.servers": broker.bootstrap})
    client_.create_partitions([NewPartitions(topic, partitions)])[topic].result(WAIT)
    wait_until(lambda: brokers.topics()[topic] == partitions, WAIT, f"{topic} has {partitions} partitions")


@pytest.mark.parametrize("by_key", [False, True])
def test_restarted_restore_keeps_its_plan(brokers: Brokers, broker: Any, by_key: bool) -> None:
    """Even if the archive has grown, and the target has records and more partitions."""
    topic = unique("t")
    topics.create(client(broker), {topic: 2 if by_key else 4}, {})
    begun = prepared(brokers, broker, topic, [10, 20, 30, 40], by_key=by_key)
    assert begun.ends == {0: 10, 1: 20, 2: 30, 3: 40}
    send(broker, topic, range(3))
    widened(brokers, broker, topic, 5)
    assert prepared(brokers, broker, topic, [11, 21, 31, 41, 51], by_key=by_key) == begun
    restoring.finish(brokers, begun)
    assert prepared(brokers, broker, topic, [11, 21, 31, 41, 51], by_key=by_key).done


class Dying(Brokers):
    """Dies after its first commit."""

    _left = 1

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        super().commit(group, offsets)


def test_incomplete_plan_is_stored_again(brokers: Brokers, broker: Any) -> None:
    topic = unique("t")
    topics.create(client(broker), {topic: 1}, {})
    with Dying(client(broker)) as dying, pytest.raises(KeyboardInterrupt):
        prepared(dying, broker, topic, [10, 20], by_key=True)
    assert prepared(brokers, broker, topic, [11, 21], by_key=True).ends == {0: 11, 1: 21}


def test_archive_without_topics_is_not_restored() -> None:
    with pytest.raises(PipelineError, match="the archive has no topics"):
        RestorePlan().chosen(State(0))
