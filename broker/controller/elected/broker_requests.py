"""Sends the controller's decisions to brokers: to peers as requests, to this broker without a connection.

`cluster.decisions.broker_request_batch` decides which broker gets what. Requests reach a broker in the order in which
they are made here (broker.interbroker.peers): LeaderAndIsr before the UpdateMetadata that clients see, then
StopReplica. A broker that has just started gets the live brokers before all that.
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
from odradek.cluster.decisions import broker_request_batch
from odradek.cluster.decisions.broker_request_batch import (
    BrokerRequestBatch,
    LeaderAndIsr,
    Replica,
    StopReplica,
    UpdateMetadata,
)
from odradek.cluster.decisions.controller_state import ControllerContext
from odradek.cluster.metadata.view import NO_ID, ControllerTerm, PartitionUpdate, raw_broker
from odradek.cluster.tree.znodes import Partition
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE

log = logging.getLogger(__name__)

_ACK_TIMEOUT_S = 1.0  # a broker that does not answer is stopped or unreachable: clients do not wait for it

Stopped = Callable[[int, int, Errors], None]  # broker, error code, errors of partitions
LeaderAndIsrDone = Callable[
    [int, Sequence[Partition], Errors], None
]  # broker, partitions of the request, errors of partitions


def _log_errors(error: int, errors: Errors) -> None:
    if error or errors:
        log.warning("broker rejected a controller request: %d %s", error, errors)


class BrokerRequests:
    """Sends one controller term's requests to `brokers`, and to this broker through `own_requests`.

    `on_leader_and_isr` is called with every LeaderAndIsr response.
    """

    def __init__(
        self,
        own: int,
        loaded: LoadedState,
        own_requests: ControllerRequests,
        brokers: Brokers,
        on_leader_and_isr: LeaderAndIsrDone,
    ) -> None:
        self._own = own
        self._loaded = loaded
        self._own_requests = own_requests
        self._brokers = brokers
        self._on_leader_and_isr = on_leader_and_isr
        self._count = 0
        self._need_full_state: set[int] = set()  # brokers that need the full state, once it is complete
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    @property
    def _context(self) -> ControllerContext:
        return self._loaded.context

    def send_changes(
        self, partitions: Sequence[Partition], new: Collection[Partition | Replica] = (),
        stop: Mapping[Replica, bool] | None = None,
    ) -> None:  # fmt: skip
        """Send the changed state of some partitions, and have some replicas `stop` (True: and be deleted)."""
        self._send_pending_full_state()
        if partitions or stop:
            self._send_requests(broker_request_batch.requests(self._context, partitions, new=new, stop=stop))

    def send_full_state(self, brokers: Collection[int]) -> None:
        """Send the full state to new brokers; send the others the new list of live brokers."""
        full = {broker for broker in brokers if broker_request_batch.is_full(self._context, broker)}
        self._need_full_state = (self._need_full_state | set(brokers)) - full
        self._send_live_brokers(brokers)
        self._send_requests(broker_request_batch.full_state(self._context, brokers), full=full)

    def _send_live_brokers(self, brokers: Collection[int]) -> None:
        """Name the live brokers to new ones before their LeaderAndIsr, as Kafka's onBrokerStartup does.

        An Apache broker ignores that it follows a leader that it does not know, and answers without an error
        (ReplicaManager.makeFollowers): it would never fetch.
        """
        for broker in set(brokers) & self._brokers.peers.keys():
            self._send_update_metadata(broker, self._term(broker), [])

    def _send_pending_full_state(self) -> None:
        """Send the full state to brokers that have not had it yet, or may have logs of a topic since recreated."""
        if self._context.recreated:
            self._context.recreated.clear()
            self._need_full_state.update(self._context.live)
        waiting = self._need_full_state & self._context.live.keys()
        due = {broker for broker in waiting if broker_request_batch.is_full(self._context, broker)}
        if due:
            self.send_full_state(due)

    def send_metadata(self, partitions: Sequence[Partition] = ()) -> None:
        """Send the live brokers and the state of some partitions."""
        self._send_requests(broker_request_batch.requests(self._context, shown=partitions))

    def stop_replicas(
        self, stop: Mapping[Replica, bool], shown: Sequence[Partition], stopped: Stopped | None = None
    ) -> None:  # fmt: skip
        """Stop replicas, and send metadata of `shown`; `stopped` is called with each broker's StopReplica result."""
        self._send_pending_full_state()
        self._send_requests(broker_request_batch.requests(self._context, stop=stop, shown=shown), stopped)

    def probe_log_dirs(self, broker: int) -> None:
        """Resend LeaderAndIsr for all replicas of a broker: its response says which are offline."""
        if broker in self._context.live:
            self._send_requests({broker: broker_request_batch.log_dir_probe(self._context, broker)})

    # -- acknowledgements

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called in a millisecond."""
        return bool(self._waiting)

    def when_acked(self, action: Callable[[], None]) -> None:
        """Call `action` when all brokers have acknowledged the requests sent so far, or take too long."""
        self._waiting.append((time.monotonic() + _ACK_TIMEOUT_S, action))

    def tick(self, now: float) -> None:
        """Run what is due (monotonic seconds)."""
        if not self._waiting:
            return
        live, peers = self._context.live, self._brokers.peers
        all_have = all(peers[broker].idle for broker in live if broker in peers)
        due = [action for deadline, action in self._waiting if all_have or deadline <= now]
        self._waiting = [] if all_have else [entry for entry in self._waiting if entry[0] > now]
        for action in due:
            action()

    # -- sending

    def _send_requests(
        self, told: Mapping[int, BrokerRequestBatch], stopped: Stopped | None = None, full: Collection[int] = ()
    ) -> None:  # fmt: skip
        for broker, requests in told.items():
            term = self._term(broker, full=broker in full)
            if requests.leader_and_isr:
                self._send_leader_and_isr(broker, term, requests.leader_and_isr)
            self._send_update_metadata(broker, term, requests.metadata)
            if requests.stop:
                self._send_stop_replica(
                    broker, term, requests.stop, _reporting(broker, stopped) if stopped else _log_errors
                )

    def _term(self, broker: int, *, full: bool = False) -> ControllerTerm:
        return ControllerTerm(
            self._own, self._context.controller_epoch, self._brokers.epochs.get(broker, -1), full=full
        )

    def _send_leader_and_isr(self, broker: int, term: ControllerTerm, parts: Sequence[LeaderAndIsr]) -> None:
        def done(error: int, errors: Errors) -> None:
            _log_errors(error, errors)
            if error == NONE:
                self._on_leader_and_isr(broker, [one.partition for one in parts], errors)

        if broker == self._own:
            self._own_requests.leader_and_isr(term, [_partition_update(one, one.is_new) for one in parts], done)
            return
        nodes = dict(self._brokers.nodes)
        self._send(
            broker, "LeaderAndIsr", request_builder.LEADER_AND_ISR,
            lambda: request_builder.leader_and_isr(term, parts, nodes),
            lambda answer: done(answer.error_code, request_builder.leader_and_isr_errors(answer, parts)),
        )  # fmt: skip

    def _send_update_metadata(self, broker: int, term: ControllerTerm, parts: Sequence[UpdateMetadata]) -> None:
        """Name all registered brokers, also suspected ones: librdkafka takes a second longer to leave an old leader
        that is missing from the metadata."""
        nodes = dict(sorted(self._brokers.nodes.items()))
        if broker == self._own:
            brokers = [raw_broker(number, node) for number, node in nodes.items()]
            self._own_requests.update_metadata(term, list(map(_metadata_update, parts)), brokers, _log_errors)
            return
        self._send(
            broker, "UpdateMetadata", request_builder.UPDATE_METADATA,
            lambda: request_builder.update_metadata(term, parts, nodes), _log_rejection,
        )  # fmt: skip

    def _send_stop_replica(self, broker: int, term: ControllerTerm, stops: Sequence[StopReplica], done: Done) -> None:
        if broker == self._own:
            self._own_requests.stop_replica(term, stops, done)
            return
        self._send(
            broker, "StopReplica", request_builder.STOP_REPLICA, lambda: request_builder.stop_replica(term, stops),
            lambda answer: done(answer.error_code, request_builder.stop_errors(answer)),
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


def _partition_update(one: LeaderAndIsr | UpdateMetadata, is_new: bool = False) -> PartitionUpdate:
    return PartitionUpdate(
        one.partition[0], one.topic_id or NO_ID, one.partition[1], one.controller_epoch, one.leader, one.leader_epoch,
        list(one.isr), one.partition_epoch, list(one.replicas), is_new,
    )  # fmt: skip


def _metadata_update(one: UpdateMetadata) -> PartitionUpdate:
    return _partition_update(one)._replace(offline=list(one.offline_replicas))


def _reporting(broker: int, stopped: Stopped) -> Done:
    return lambda error, errors: stopped(broker, error, errors)


def _log_rejection(response: Any) -> None:
    if response.error_code:
        log.warning("broker rejected UpdateMetadata: %d", response.error_code)
