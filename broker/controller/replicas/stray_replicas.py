"""Logs that this broker has and shall not have: put aside under a name that ends in -stray, as Kafka does.

While a broker was away its replica may have been moved to others; the nodes of a topic may have been taken out of
ZooKeeper by hand, and a topic of that name made again. No order says so. It shows when the controller tells everything
(view.Office: `full`), which it does after each registration, and when it sees a topic that was made again. Kafka has
this of its controllers in KRaft; those on ZooKeeper leave such logs, and such a topic, as they are.

What a log that is put aside holds may be all that is left of a topic: nobody deletes it but people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cluster.metadata.rows import NOWHERE, SLOT
from odradek.cluster.metadata.view import NO_ID

if TYPE_CHECKING:
    from odradek.broker.controller.replicas.replica_manager import Replicas
    from odradek.cluster.metadata.view import PartitionUpdate


def make_way(replicas: Replicas, told: PartitionUpdate) -> None:
    """Put aside what there is of a topic that has the name of the one told of, and another id. Busy: try again."""
    topics = replicas.view.topics
    if told.topic in topics and topics[told.topic]["id"] != NO_ID.hex() and not replicas.same_topic(told):
        _forget(replicas, told.topic)


def keep(replicas: Replicas, told: Sequence[PartitionUpdate]) -> None:
    """Put aside all logs that this broker has no replica for, by what was `told`. Busy: try again."""
    own = {(one.topic, one.number) for one in told if replicas.view.broker in one.replicas}
    for topic in replicas.view.topics.keys() - {one.topic for one in told}:
        _forget(replicas, topic)
    for topic, index, row in list(replicas):
        if (topic, index) not in own:
            replicas.put_away(topic, index, row, replicas.dirs.set_aside)
    for topic, index in replicas.dirs.found():
        if (topic, index) not in own:
            # Without a slot: nothing was known of its topic when this process started.
            replicas.dirs.put_away(topic, index, replicas.dirs.set_aside)


def _forget(replicas: Replicas, topic: str) -> None:
    for index, row in enumerate(replicas.view.topics[topic]["partitions"]):
        if row[SLOT] != NOWHERE:
            replicas.put_away(topic, index, row, replicas.dirs.set_aside)
    replicas.view.forget(topic)
