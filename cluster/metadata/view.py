"""The cluster as the elected controller tells it to a broker: what snapshots are made of.

Pure memory, lost with the process and told again when the broker registers. Where partitions live on this broker is
entered into the same rows by who gives out slots (broker.controller.replicas.replica_manager).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from odradek.cluster.configs.admitted import NOBODY
from odradek.cluster.metadata.rows import EPOCH, ISR, LEADER, NOWHERE, OFFLINE, REPLICAS
from odradek.cluster.metadata.snapshot import NOTHING_HEARD, Snapshot, first_partitions, raw_snapshot
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.validation import place_fault, replicas_problem
from odradek.cluster.tree.znodes import BrokerNode
from odradek.protocol.errors import INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, NONE

CONTROLLER = "odradek-controller"  # the client id of a controller's requests; behind an order's there is its number
FULL = 2  # the type of a LeaderAndIsr or UpdateMetadata (Kafka's AbstractControlRequest.Type)
NO_LEADER = -1
NO_ID = bytes(16)
Row = list[Any]


class PartitionUpdate(NamedTuple):
    """One partition as a controller decided; `version` is that of its state node, `leader` may be NO_LEADER.

    `is_new`: made just now, so that nobody has a log of it yet. `offline`: replicas out of order, if that is said.
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


def fault(told: PartitionUpdate) -> tuple[int, str]:
    """(error code, why) of a partition as a controller tells of it; (NONE, "") when it can be taken."""
    code, wrong = place_fault(told.topic, told.number)
    if code:
        return code, wrong
    unusable = replicas_problem(told.replicas)
    if unusable:
        return INVALID_REPLICA_ASSIGNMENT, unusable
    if told.leader_epoch < 0:
        return INVALID_REQUEST, f"the leader epoch {told.leader_epoch} is negative"
    if len(told.isr) > len(told.replicas):
        return INVALID_REQUEST, f"the ISR {told.isr} is larger than the replicas"
    return NONE, ""


class ControllerTerm(NamedTuple):
    """Who orders: the controller's broker and epoch, and the epoch of the broker that it takes us for.

    `number` counts the orders of one time in office, as far as that is told (-1: by controllers that are not ours).
    `full`: the order names all that this broker shall have a replica of. `size`: bytes of the request.
    """

    controller: int
    epoch: int
    broker_epoch: int
    number: int = -1
    full: bool = False
    size: int = 0

    @classmethod
    def of(cls, request: Any, client_id: str | None, size: int = 0) -> ControllerTerm:
        """As a LeaderAndIsr, StopReplica or UpdateMetadata request says it; the number is in its client id."""
        name, _, number = (client_id or "").rpartition("-")
        counted = int(number) if name == CONTROLLER and number.isdecimal() else -1
        full = getattr(request, "type", None) == FULL
        life = getattr(request, "broker_epoch", -1)
        return cls(request.controller_id, request.controller_epoch, life, counted, full, size)


def raw_broker(broker: int, node: BrokerNode) -> dict[str, Any]:
    """A registered broker in the form of snapshots."""
    return {"id": broker, "rack": node.rack, "endpoints": {name: list(end) for name, end in node.endpoints.items()}}


def is_same(known: str, topic_id: bytes) -> bool:
    """Whether topics of one name are the same, for all that is known of their ids; `known` is in hex."""
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
        self.admitted = NOBODY  # broker.controller.member.broker_addresses enters it
        self.heard = NOTHING_HEARD  # broker.controller.replicas.controller_requests does
        self._in_part: dict[str, int] = {}  # how many partitions are shown of those that are told of only in part

    def snapshot(self, version: int, static: Mapping[str, Any]) -> Snapshot:
        """The snapshot of this moment (its parts are shared: encode it before the next change)."""
        brokers = [self.brokers[broker] for broker in sorted(self.brokers)]
        topics = first_partitions(self.topics, self._in_part)
        raw = raw_snapshot(
            version, self.cluster_id, self.controller_id, brokers, topics, self.dynamic, self.admitted, self.heard
        )  # fmt: skip
        return Snapshot(raw, static)

    def set_brokers(self, brokers: Iterable[dict[str, Any]]) -> None:
        """Who is alive: {"id", "rack", "endpoints"}."""
        self.brokers = {broker["id"]: broker for broker in brokers}

    def tell(self, told: PartitionUpdate, in_part: bool = False) -> Row:
        """Take over what was decided of a partition; its row. A topic of the same name and another id is another; one
        whose id was not known is the one that was told of.

        `in_part`: a topic, or a partition, that is new by this is not shown before `show`, as nobody here knows yet how
        many there are; keys, groups and transactional ids would be looked for in the wrong ones.
        """
        topic = self.topics.get(told.topic)
        if topic is None or not is_same(topic["id"], told.topic_id):
            topic = self.topics[told.topic] = self._new(told)
            self._in_part.pop(told.topic, None)
        elif told.topic_id != NO_ID:
            topic["id"] = told.topic_id.hex()
        rows: list[Row] = topic["partitions"]
        if in_part and len(rows) <= told.number:
            self._in_part.setdefault(told.topic, len(rows))
        while len(rows) <= told.number:  # those between are told in the same request
            rows.append([NOWHERE, 0, NO_LEADER, -1, [], [], NOWHERE])
        row = rows[told.number]
        row[LEADER], row[EPOCH] = told.leader, told.leader_epoch
        row[REPLICAS], row[ISR] = list(told.replicas), list(told.isr)
        if told.offline is not None:
            row[OFFLINE:] = [told.offline] if told.offline else []
        return row

    def show(self, topics: Iterable[str]) -> None:
        """All partitions of these have been told of."""
        for topic in topics:
            self._in_part.pop(topic, None)

    def _new(self, told: PartitionUpdate) -> dict[str, Any]:
        internal = told.topic in topicnames.INTERNAL
        return {"id": told.topic_id.hex(), "internal": internal, "config": {}, "partitions": []}

    def forget(self, topic: str) -> None:
        """The topic is being deleted."""
        self.topics.pop(topic, None)
        self._in_part.pop(topic, None)

    def row(self, topic: str, index: int) -> Row | None:
        """The row of a partition that was told of."""
        rows = self.topics.get(topic, {}).get("partitions", ())
        return rows[index] if 0 <= index < len(rows) else None
