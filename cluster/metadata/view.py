"""A broker's view of the cluster, from the elected controller's requests; snapshots are built from it.

Pure memory: lost with the process, and sent again by the controller when the broker registers. The slot allocator
(broker.controller.replicas.replica_manager) enters each partition's location on this broker into the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from odradek.cluster.configs.admitted import NOBODY
from odradek.cluster.metadata.rows import EPOCH, ISR, LEADER, NOWHERE, OFFLINE, REPLICAS
from odradek.cluster.metadata.snapshot import NO_PROGRESS, Snapshot, first_partitions, raw_snapshot
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.validation import place_fault, replicas_problem
from odradek.cluster.tree.znodes import BrokerNode
from odradek.protocol.errors import INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, NONE

CONTROLLER = "odradek-controller"  # prefix of the client id of a controller's requests; the request number follows
FULL = 2  # the type of a LeaderAndIsr or UpdateMetadata (Kafka's AbstractControlRequest.Type)
NO_LEADER = -1
NO_ID = bytes(16)
Row = list[Any]


class PartitionUpdate(NamedTuple):
    """A controller's decision on one partition; `version` is its state node's, `leader` may be NO_LEADER.

    `is_new`: just created, so that no broker has a log of it yet. `offline`: offline replicas, None if not sent.
    """

    topic: str
    topic_id: bytes
    number: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    version: int
    replicas: list[int]
    is_new: bool = False
    offline: list[int] | None = None


def update_error(update: PartitionUpdate) -> tuple[int, str]:
    """(error code, why) for a controller's update of a partition; (NONE, "") when it is valid."""
    code, wrong = place_fault(update.topic, update.number)
    if code:
        return code, wrong
    unusable = replicas_problem(update.replicas)
    if unusable:
        return INVALID_REPLICA_ASSIGNMENT, unusable
    if update.leader_epoch < 0:
        return INVALID_REQUEST, f"the leader epoch {update.leader_epoch} is negative"
    if len(update.isr) > len(update.replicas):
        return INVALID_REQUEST, f"the ISR {update.isr} is larger than the replicas"
    return NONE, ""


class ControllerTerm(NamedTuple):
    """The sender of a request: the controller's broker and epoch, and the broker epoch that it expects of this broker.

    `number` counts the requests of one controller epoch (-1: not sent, from controllers that are not ours).
    `full`: the request lists every replica that this broker is to have. `size`: bytes of the request.
    """

    controller: int
    epoch: int
    broker_epoch: int
    number: int = -1
    full: bool = False
    size: int = 0

    @classmethod
    def of(cls, request: Any, client_id: str | None, size: int = 0) -> ControllerTerm:
        """The term in a LeaderAndIsr, StopReplica or UpdateMetadata request; the number is in its client id."""
        name, _, number = (client_id or "").rpartition("-")
        counted = int(number) if name == CONTROLLER and number.isdecimal() else -1
        full = getattr(request, "type", None) == FULL
        broker_epoch = getattr(request, "broker_epoch", -1)
        return cls(request.controller_id, request.controller_epoch, broker_epoch, counted, full, size)


def raw_broker(broker: int, node: BrokerNode) -> dict[str, Any]:
    """A registered broker in the form of snapshots."""
    return {"id": broker, "rack": node.rack, "endpoints": {name: list(end) for name, end in node.endpoints.items()}}


def is_same(known: str, topic_id: bytes) -> bool:
    """Whether topics of one name may be the same: their ids match or one is unknown. `known` is in hex."""
    return NO_ID.hex() in (known, topic_id.hex()) or known == topic_id.hex()


class View:
    """Brokers, topics and dynamic configs, in the form of snapshots."""

    def __init__(self, broker: int, cluster_id: str) -> None:
        self.broker = broker
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: dict[int, dict[str, Any]] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self.dynamic: dict[str, dict[str, str]] = {}
        self.quotas: dict[str, dict[str, float]] = {}
        self.protocols: dict[str, str] = {}  # of this broker's listeners (broker.controller.dynamic_listeners)
        self.admitted = NOBODY  # broker.controller.member.broker_addresses enters it
        self.security = 0  # the version of the security metadata that belongs to the next snapshot
        self.controller_progress = NO_PROGRESS  # broker.controller.replicas.controller_requests does
        self._incomplete: dict[str, int] = {}  # the number of visible partitions of each incomplete topic

    def snapshot(self, version: int, static: Mapping[str, Any]) -> Snapshot:
        """The current snapshot (it shares its parts with the view: encode it before the next change)."""
        brokers = [self.brokers[broker] for broker in sorted(self.brokers)]
        topics = first_partitions(self.topics, self._incomplete)
        raw = raw_snapshot(
            version, self.cluster_id, self.controller_id, brokers, topics, self.dynamic, self.admitted,
            self.controller_progress, self.security, self.quotas, self.protocols,
        )  # fmt: skip
        return Snapshot(raw, static)

    def set_brokers(self, brokers: Iterable[dict[str, Any]]) -> None:
        """Replace the live brokers: {"id", "rack", "endpoints"}."""
        self.brokers = {broker["id"]: broker for broker in brokers}

    def apply(self, update: PartitionUpdate, incomplete: bool = False) -> Row:
        """Apply a partition update and return the row. A topic of the same name but another id replaces the former one;
        a topic whose id was unknown takes the id of the update.

        `incomplete`: a topic or partition that this update adds stays hidden until `show`, because the number of
        partitions is not known yet; keys, groups and transactional ids would map to the wrong partitions.
        """
        topic = self.topics.get(update.topic)
        if topic is None or not is_same(topic["id"], update.topic_id):
            topic = self.topics[update.topic] = self._new(update)
            self._incomplete.pop(update.topic, None)
        elif update.topic_id != NO_ID:
            topic["id"] = update.topic_id.hex()
        rows: list[Row] = topic["partitions"]
        if incomplete and len(rows) <= update.number:
            self._incomplete.setdefault(update.topic, len(rows))
        while len(rows) <= update.number:  # the same request has those in between
            rows.append([NOWHERE, 0, NO_LEADER, -1, [], [], NOWHERE])
        row = rows[update.number]
        row[LEADER], row[EPOCH] = update.leader, update.leader_epoch
        row[REPLICAS], row[ISR] = list(update.replicas), list(update.isr)
        if update.offline is not None:
            row[OFFLINE:] = [update.offline] if update.offline else []
        return row

    def show(self, topics: Iterable[str]) -> None:
        """Show these topics: all their partitions are known."""
        for topic in topics:
            self._incomplete.pop(topic, None)

    def _new(self, update: PartitionUpdate) -> dict[str, Any]:
        internal = update.topic in topicnames.INTERNAL
        return {"id": update.topic_id.hex(), "internal": internal, "config": {}, "partitions": []}

    def forget(self, topic: str) -> None:
        """Remove a topic that is being deleted."""
        self.topics.pop(topic, None)
        self._incomplete.pop(topic, None)

    def row(self, topic: str, index: int) -> Row | None:
        """The row of a partition, or None when it is unknown."""
        rows = self.topics.get(topic, {}).get("partitions", ())
        return rows[index] if 0 <= index < len(rows) else None
