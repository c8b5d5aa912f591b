"""Logs that this broker has but must not have: set aside under a name that ends in -stray, as Kafka does.

While a broker was down, its replica may have been moved to others; or a topic's nodes were deleted from ZooKeeper by
hand, and the topic recreated. No controller request says so. It shows when the controller sends the full state
(view.ControllerTerm: `full`), after each registration and when it sees a recreated topic. Kafka does this with KRaft
controllers; its ZooKeeper controllers leave such logs, and such a topic, as they are.

A log that is set aside may be all that is left of a topic: only people delete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cluster.metadata.rows import NOWHERE, SLOT
from odradek.cluster.metadata.view import NO_ID

if TYPE_CHECKING:
    from odradek.broker.controller.replicas.replica_manager import ReplicaManager
    from odradek.cluster.metadata.view import PartitionUpdate


def set_aside_former_topic(replicas: ReplicaManager, update: PartitionUpdate) -> None:
    """Set aside all logs of a topic with the update's name and another id. LockNotAvailable: retry."""
    topics = replicas.view.topics
    if update.topic in topics and topics[update.topic]["id"] != NO_ID.hex() and not replicas.same_topic(update):
        _forget(replicas, update.topic)


def set_aside_strays(replicas: ReplicaManager, updates: Sequence[PartitionUpdate]) -> None:
    """Set aside all logs for which this broker has no replica according to `updates`. LockNotAvailable: retry."""
    own = {(one.topic, one.number) for one in updates if replicas.view.broker in one.replicas}
    for topic in replicas.view.topics.keys() - {one.topic for one in updates}:
        _forget(replicas, topic)
    for topic, index, row in list(replicas):
        if (topic, index) not in own:
            replicas.put_away(topic, index, row, replicas.dirs.set_aside)
    for topic, index in replicas.dirs.found():
        if (topic, index) not in own:
            # Without a slot: its topic was unknown when this process started.
            replicas.dirs.put_away(topic, index, replicas.dirs.set_aside)


def _forget(replicas: ReplicaManager, topic: str) -> None:
    for index, row in enumerate(replicas.view.topics[topic]["partitions"]):
        if row[SLOT] != NOWHERE:
            replicas.put_away(topic, index, row, replicas.dirs.set_aside)
    replicas.view.forget(topic)
