"""Telling brokers what was decided: LeaderAndIsr to who has a replica, UpdateMetadata to all, StopReplica.

Requests reach a broker in the order in which they were made here (broker.peers), LeaderAndIsr before the UpdateMetadata
that lets clients know (Kafka's ControllerBrokerRequestBatch). This broker is told without a connection.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from odradek.broker.orders import Done, Errors, Orders
from odradek.broker.peers import CLIENT_ID, Peer
from odradek.cluster.elections import NO_LEADER
from odradek.cluster.leadership import Leadership
from odradek.cluster.view import DURING_DELETE, NO_ID, Office, Stop, Told, raw_broker
from odradek.cluster.znodes import BrokerNode, Partition
from odradek.protocol import interbroker

log = logging.getLogger(__name__)

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 7, 4, 8  # versions: Kafka 3.9's
Fields = Callable[[], dict[str, Any]]  # made when they are sent: they may never be
_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def _ignore(error: int, errors: Errors) -> None:
    if error or errors:
        log.warning("an order was refused: %d %s", error, errors)


class Telling:
    """What a controller says, to peers and to its own broker's orders."""

    def __init__(
        self, own: int, epoch: int, leadership: Leadership, orders: Orders, nodes: Mapping[int, BrokerNode],
        peers: Mapping[int, Peer],
    ) -> None:  # fmt: skip
        self.leadership = leadership
        self.epochs: dict[int, int] = {}
        self._own = own
        self._epoch = epoch
        self._orders = orders
        self._nodes = nodes
        self._peers = peers

    # -- what to say

    def changed(self, partitions: Sequence[Partition], new: bool = False) -> None:
        """The standings of some partitions are others."""
        if not partitions:
            return
        told = {partition: self._told(partition, new) for partition in partitions}
        for broker in list(self.leadership.live):
            self._lead(broker, [one for one in told.values() if broker in one.replicas])
        self._know(self.leadership.live, list(told.values()))

    def everything(self, brokers: Iterable[int]) -> None:
        """All that there is, to brokers that know nothing yet."""
        brokers = list(brokers)
        told = [self._told(partition) for partition in self.leadership.partitions()]
        for broker in brokers:
            mine = [one for one in told if broker in one.replicas and one.leader_epoch >= 0]
            self._lead(broker, mine)
        self._know(brokers, told)

    def metadata(self, brokers: Iterable[int], partitions: Sequence[Partition]) -> None:
        """Who is alive, and some partitions."""
        self._know(brokers, [self._told(partition) for partition in partitions])

    def deletion(self, topic: str) -> None:
        """A topic is going: nobody shall use it any more."""
        partitions = [(topic, index) for index in self.leadership.topics[topic].replicas]
        going = [self._told(partition)._replace(leader=DURING_DELETE) for partition in partitions]
        self._know(self.leadership.live, going)

    def stop(self, broker: int, stops: Sequence[Stop], done: Done) -> None:
        """Have a broker stop some replicas."""
        office = self._office(broker)
        if broker == self._own:
            self._orders.stop(office, stops, done)
        else:
            self._send(broker, "StopReplica", STOP_REPLICA, _stop_fields(office, stops), _stopped(done))

    def epoch_of(self, partition: Partition) -> int:
        """The leader epoch a partition is in."""
        standing = self.leadership.standings.get(partition)
        return -1 if standing is None else standing.leader_epoch

    def _told(self, partition: Partition, new: bool = False) -> Told:
        topic, index = partition
        node = self.leadership.topics[topic]
        now = self.leadership.standings.get(partition)
        replicas = list(self.leadership.replicas(partition))
        if now is None:
            return Told(topic, node.id or NO_ID, index, self._epoch, NO_LEADER, -1, [], -1, replicas)
        return Told(
            topic, node.id or NO_ID, index, now.controller_epoch, now.leader, now.leader_epoch, list(now.isr),
            now.version, replicas, new,
        )  # fmt: skip

    # -- saying it

    def _office(self, broker: int) -> Office:
        return Office(self._own, self._epoch, self.epochs.get(broker, -1))

    def _lead(self, broker: int, told: Sequence[Told]) -> None:
        if not told:
            return
        office = self._office(broker)
        if broker == self._own:
            self._orders.lead_and_follow(office, told, _ignore)
            return
        leaders = {one.leader for one in told} & self._nodes.keys()
        nodes = {leader: self._nodes[leader] for leader in sorted(leaders)}
        fields = _lead_fields(office, told, nodes)
        self._send(broker, "LeaderAndIsr", LEADER_AND_ISR, fields, _led)

    def _know(self, brokers: Iterable[int], told: Sequence[Told]) -> None:
        """All registered brokers are named, also those taken for dead: of a leader that vanishes altogether while it is
        being replaced, librdkafka takes a second longer to let go."""
        nodes = {broker: self._nodes[broker] for broker in sorted(self._nodes)}
        live = set(self.leadership.live)
        for broker in list(brokers):
            office = self._office(broker)
            if broker == self._own:
                self._orders.know(office, told, [raw_broker(number, node) for number, node in nodes.items()], _ignore)
            else:
                fields = _know_fields(office, told, nodes, live)
                self._send(broker, "UpdateMetadata", UPDATE_METADATA, fields, _known)

    def _send(self, broker: int, name: str, version: int, fields: Fields, answered: Callable[[Any], None]) -> None:
        peer = self._peers.get(broker)
        if peer is None:
            return

        def encode(correlation: int) -> bytes:
            return interbroker.request(name, version, correlation, CLIENT_ID, **fields())

        peer.send(encode, lambda frame: answered(interbroker.response(name, version, frame)[1]))

    @property
    def silent(self) -> bool:
        """Whether everybody has answered everything."""
        return all(self._peers[broker].idle for broker in self.leadership.live if broker in self._peers)


def _by_topic(told: Sequence[Told]) -> Mapping[tuple[str, bytes], list[Told]]:
    topics: dict[tuple[str, bytes], list[Told]] = defaultdict(list)
    for one in told:
        topics[one.topic, one.topic_id].append(one)
    return topics


def _from(office: Office) -> dict[str, Any]:
    return {
        "controller_id": office.controller, "is_kraft_controller": False, "controller_epoch": office.epoch,
        "broker_epoch": office.broker_epoch,
    }  # fmt: skip


def _lead_fields(office: Office, told: Sequence[Told], leaders: Mapping[int, BrokerNode]) -> Fields:
    request = interbroker.message_class("LeaderAndIsrRequest")
    topic = request.TopicState

    def part(one: Told) -> Any:
        return topic.PartitionState(
            partition_index=one.number, controller_epoch=one.controller_epoch, leader=one.leader,
            leader_epoch=one.leader_epoch, isr=one.isr, partition_epoch=one.version, replicas=one.replicas,
            adding_replicas=[], removing_replicas=[], is_new=one.is_new, leader_recovery_state=0,
        )  # fmt: skip

    def fields() -> dict[str, Any]:
        ends = {broker: next(iter(node.endpoints.values())) for broker, node in leaders.items()}
        return _from(office) | {
            "type": 0,
            "topic_states": [
                topic(topic_name=name, topic_id=UUID(bytes=topic_id), partition_states=[part(one) for one in parts])
                for (name, topic_id), parts in _by_topic(told).items()
            ],
            "live_leaders": [
                request.LiveLeader(broker_id=broker, host_name=host, port=port) for broker, (host, port) in ends.items()
            ],
        }

    return fields


def _know_fields(
    office: Office, told: Sequence[Told], nodes: Mapping[int, BrokerNode], live: Collection[int]
) -> Fields:
    request = interbroker.message_class("UpdateMetadataRequest")
    topic, broker_class = request.TopicState, request.Broker

    def part(one: Told) -> Any:
        return topic.PartitionState(
            partition_index=one.number, controller_epoch=one.controller_epoch, leader=one.leader,
            leader_epoch=one.leader_epoch, isr=one.isr, zk_version=one.version, replicas=one.replicas,
            offline_replicas=[broker for broker in one.replicas if broker not in live],
        )  # fmt: skip

    def broker(number: int, node: BrokerNode) -> Any:
        ends = [
            broker_class.Endpoint(
                port=port, host=host, listener=name, security_protocol=_PROTOCOLS.get(node.protocols[name], 0)
            )
            for name, (host, port) in node.endpoints.items()
        ]
        return broker_class(id=number, endpoints=ends, rack=node.rack)

    def fields() -> dict[str, Any]:
        return _from(office) | {
            "type": 0,
            "topic_states": [
                topic(topic_name=name, topic_id=UUID(bytes=topic_id), partition_states=[part(one) for one in parts])
                for (name, topic_id), parts in _by_topic(told).items()
            ],
            "live_brokers": [broker(number, node) for number, node in nodes.items()],
        }

    return fields


def _stop_fields(office: Office, stops: Sequence[Stop]) -> Fields:
    topic = interbroker.message_class("StopReplicaRequest").TopicState
    by_name: dict[str, list[Stop]] = defaultdict(list)
    for one in stops:
        by_name[one.topic].append(one)

    def fields() -> dict[str, Any]:
        return _from(office) | {
            "topic_states": [
                topic(
                    topic_name=name,
                    partition_states=[
                        topic.PartitionState(
                            partition_index=one.number, leader_epoch=one.leader_epoch, delete_partition=one.delete
                        )
                        for one in some
                    ],
                )
                for name, some in by_name.items()
            ]
        }

    return fields


def _led(response: Any) -> None:
    bad = [
        (topic.topic_id, part.partition_index, part.error_code)
        for topic in response.topics
        for part in topic.partition_errors
        if part.error_code
    ]
    if response.error_code or bad:
        log.warning("LeaderAndIsr was refused: %d %s", response.error_code, bad)


def _known(response: Any) -> None:
    if response.error_code:
        log.warning("UpdateMetadata was refused: %d", response.error_code)


def _stopped(done: Done) -> Callable[[Any], None]:
    def answered(response: Any) -> None:
        errors = {
            (part.topic_name, part.partition_index): part.error_code
            for part in response.partition_errors
            if part.error_code
        }
        done(response.error_code, errors)

    return answered
