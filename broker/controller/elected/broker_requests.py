"""Sends the controller's decisions to brokers: to peers as requests, to this broker without a connection.

`cluster.decisions.who_is_told` decides which broker gets what. Requests reach a broker in the order in which they are
made here (broker.interbroker.peers): LeaderAndIsr before the UpdateMetadata that clients see, StopReplica last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from odradek.broker.controller.elected import request_builder
from odradek.broker.controller.elected.brokers import Brokers
from odradek.broker.controller.elected.state_loader import LoadedState
from odradek.broker.controller.replicas.controller_requests import ControllerRequests, Done, Errors
from odradek.broker.interbroker.peers import CLIENT_ID
from odradek.cluster.decisions import who_is_told
from odradek.cluster.decisions.controller_state import Leadership
from odradek.cluster.decisions.who_is_told import LeaderAndIsr, Metadata, Replica, Requests, Stop
from odradek.cluster.metadata.view import NO_ID, ControllerTerm, PartitionUpdate, raw_broker
from odradek.cluster.tree.znodes import Partition
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0  # a broker that does not answer is stopped or unreachable: clients do not wait for it

Stopped = Callable[[int, int, Errors], None]  # broker, error code, errors of partitions
Heard = Callable[[int, Sequence[Partition], Errors], None]  # broker, partitions of the request, errors of partitions


def _ignore(error: int, errors: Errors) -> None:
    if error or errors:
        log.warning("broker rejected a controller request: %d %s", error, errors)


class BrokerRequests:
    """Sends one controller term's requests to `brokers`, and to this broker through `orders`.

    `heard` is called with every LeaderAndIsr response.
    """

    def __init__(
        self, own: int, facts: LoadedState, orders: ControllerRequests, brokers: Brokers, heard: Heard
    ) -> None:
        self._own = own
        self._facts = facts
        self._orders = orders
        self._brokers = brokers
        self._heard = heard
        self._count = 0
        self._owed: set[int] = set()  # brokers that need the full state, once it is complete
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    @property
    def _leadership(self) -> Leadership:
        return self._facts.leadership

    def changed(
        self, partitions: Sequence[Partition], new: Collection[Partition | Replica] = (),
        stop: Mapping[Replica, bool] | None = None,
    ) -> None:  # fmt: skip
        """Send the changed state of some partitions, and have some replicas `stop` (True: and be deleted)."""
        self._tell_all()
        if partitions or stop:
            self._tell(who_is_told.requests(self._leadership, partitions, new=new, stop=stop))

    def welcome(self, brokers: Collection[int]) -> None:
        """Send the full state to new brokers; send the others the new list of live brokers."""
        full = {broker for broker in brokers if who_is_told.is_full(self._leadership, broker)}
        self._owed = (self._owed | set(brokers)) - full
        self._tell(who_is_told.welcome(self._leadership, brokers), full=full)

    def _tell_all(self) -> None:
        """Send the full state to brokers that have not had it yet, or may have logs of a topic since recreated."""
        if self._leadership.remade:
            self._leadership.remade.clear()
            self._owed.update(self._leadership.live)
        waiting = self._owed & self._leadership.live.keys()
        due = {broker for broker in waiting if who_is_told.is_full(self._leadership, broker)}
        if due:
            self.welcome(due)

    def show(self, partitions: Sequence[Partition] = ()) -> None:
        """Send the live brokers and the state of some partitions."""
        self._tell(who_is_told.requests(self._leadership, shown=partitions))

    def stop(
        self, stop: Mapping[Replica, bool], shown: Sequence[Partition], stopped: Stopped | None = None
    ) -> None:  # fmt: skip
        """Stop replicas, and send metadata of `shown`; `stopped` is called with each broker's StopReplica result."""
        self._tell_all()
        self._tell(who_is_told.requests(self._leadership, stop=stop, shown=shown), stopped)

    def probe(self, broker: int) -> None:
        """Resend LeaderAndIsr for all replicas of a broker: its response says which are offline."""
        if broker in self._leadership.live:
            self._tell({broker: who_is_told.probe(self._leadership, broker)})

    # -- acknowledgements

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called in a millisecond."""
        return bool(self._waiting)

    def when_heard(self, action: Callable[[], None]) -> None:
        """Call `action` when all brokers have acknowledged the requests sent so far, or take too long."""
        self._waiting.append((time.monotonic() + _PATIENCE_S, action))

    def tick(self, now: float) -> None:
        """Run what is due (monotonic seconds)."""
        if not self._waiting:
            return
        live, peers = self._leadership.live, self._brokers.peers
        all_have = all(peers[broker].idle for broker in live if broker in peers)
        due = [action for deadline, action in self._waiting if all_have or deadline <= now]
        self._waiting = [] if all_have else [entry for entry in self._waiting if entry[0] > now]
        for action in due:
            action()

    # -- sending

    def _tell(
        self, told: Mapping[int, Requests], stopped: Stopped | None = None, full: Collection[int] = ()
    ) -> None:  # fmt: skip
        epoch = self._leadership.controller_epoch
        for broker, requests in told.items():
            office = ControllerTerm(self._own, epoch, self._brokers.epochs.get(broker, -1), full=broker in full)
            if requests.leader_and_isr:
                self._lead(broker, office, requests.leader_and_isr)
            self._know(broker, office, requests.metadata)
            if requests.stop:
                self._stop(broker, office, requests.stop, _reporting(broker, stopped) if stopped else _ignore)

    def _lead(self, broker: int, office: ControllerTerm, parts: Sequence[LeaderAndIsr]) -> None:
        def done(error: int, errors: Errors) -> None:
            _ignore(error, errors)
            if error == NONE:
                self._heard(broker, [one.partition for one in parts], errors)

        if broker == self._own:
            self._orders.lead_and_follow(office, [_told(one, one.is_new) for one in parts], done)
            return
        nodes = dict(self._brokers.nodes)
        self._send(
            broker, "LeaderAndIsr", request_builder.LEADER_AND_ISR,
            lambda: request_builder.leader_and_isr(office, parts, nodes),
            lambda answer: done(answer.error_code, request_builder.not_led(answer, parts)),
        )  # fmt: skip

    def _know(self, broker: int, office: ControllerTerm, parts: Sequence[Metadata]) -> None:
        """Name all registered brokers, also suspected ones: librdkafka takes a second longer to leave an old leader
        that is missing from the metadata."""
        nodes = dict(sorted(self._brokers.nodes.items()))
        if broker == self._own:
            brokers = [raw_broker(number, node) for number, node in nodes.items()]
            self._orders.know(office, list(map(_shown, parts)), brokers, _ignore)
            return
        self._send(
            broker, "UpdateMetadata", request_builder.UPDATE_METADATA,
            lambda: request_builder.update_metadata(office, parts, nodes), _known,
        )  # fmt: skip

    def _stop(self, broker: int, office: ControllerTerm, stops: Sequence[Stop], done: Done) -> None:
        if broker == self._own:
            self._orders.stop(office, stops, done)
            return
        self._send(
            broker, "StopReplica", request_builder.STOP_REPLICA, lambda: request_builder.stop_replica(office, stops),
            lambda answer: done(answer.error_code, request_builder.refused(answer)),
        )  # fmt: skip

    def _send(
        self, broker: int, name: str, version: int, fields: Callable[[], request_builder.Fields],
        answered: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """Build the fields only on sending: the request may never be sent."""
        peer = self._brokers.peers.get(broker)
        if peer is None:
            return

        self._count += 1
        client_id = f"{CLIENT_ID}-{self._count}"  # the same on a resend

        def encode(correlation: int) -> bytes:
            return interbroker.request(name, version, correlation, client_id, **fields())

        peer.send(encode, lambda frame: answered(interbroker.response(name, version, frame)[1]))


def _told(one: LeaderAndIsr | Metadata, is_new: bool = False) -> PartitionUpdate:
    return PartitionUpdate(
        one.partition[0], one.topic_id or NO_ID, one.partition[1], one.controller_epoch, one.leader, one.leader_epoch,
        list(one.isr), one.partition_epoch, list(one.replicas), is_new,
    )  # fmt: skip


def _shown(one: Metadata) -> PartitionUpdate:
    return _told(one)._replace(offline=list(one.offline_replicas))


def _reporting(broker: int, stopped: Stopped) -> Done:
    return lambda error, errors: stopped(broker, error, errors)


def _known(response: Any) -> None:
    if response.error_code:
        log.warning("broker rejected UpdateMetadata: %d", response.error_code)
