"""The transactions' part of the coordinator process: feeds groups.transactions and carries out its effects.

Transactions keep their state only in `__transaction_state`: requests are answered after it is written there, and this
coordinator or its successor carries out every decision in it. The coordinator's loop owns one instance and calls it
once a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.broker.coordinator.effects import settle
from odradek.broker.coordinator.internal_topic import InternalTopic
from odradek.broker.coordinator.internal_topic_log import InternalTopicLog
from odradek.broker.coordinator.txn_marker_channel import TxnMarkerChannels
from odradek.broker.coordinator.txn_markers import NO_SOURCE, MarkerWriter
from odradek.broker.coordinator.verification_channel import PendingVerification, VerificationChannels
from odradek.cluster import internal
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.topicnames import OFFSETS, TRANSACTIONS
from odradek.groups.events import Answer, Append, Now, Reload
from odradek.groups.groups import Groups
from odradek.groups.log_writer import LogWriter
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Markers, NeedIds, Producer, TransactionConfig
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.transactions import Transactions
from odradek.ipc import roles
from odradek.protocol.errors import Error
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.coordination import TxnMarkerEntry

log = logging.getLogger(__name__)

BUSY_S = 0.001


class TransactionCoordinator:
    """The machine, its topic, its writers."""

    def __init__(
        self, catalog: Catalog, config: Any, groups: Groups, must_wait: Callable[[int, int], bool],
        channels: TxnMarkerChannels, verifications: VerificationChannels, controller: ControllerClient,
    ) -> None:  # fmt: skip
        self.machine = Transactions(transaction_config(config))
        self._controller = controller
        self._log = InternalTopicLog(catalog, roles.COORDINATOR, TRANSACTIONS)
        self._writer = LogWriter(
            self._log, self.machine.partition_of, self.machine.config.append_timeout_ms, faulty=self.machine.reset
        )
        self._markers = MarkerWriter(catalog, groups, must_wait, channels, self._offsets_ended)
        self._requested_ids: set[PendingVerification] = set()  # sent to other brokers
        self._channels = channels
        self._verifications = verifications
        self._snapshot = catalog.snapshot
        self.topic = InternalTopic(
            self.machine, self._log, self._writer, config["broker.id"], self._create_topic, TransactionReplay,
            TRANSACTIONS, self._markers.forget,
        )  # fmt: skip
        self._now = Now(0, 0)

    def _create_topic(self) -> None:
        self._controller.create_topic(TRANSACTIONS, lambda why: self.topic.creation_failed(why, self._now))

    def write_markers(
        self, entry: TxnMarkerEntry, done: Callable[[dict[TopicPartition, Error]], None], now: Now
    ) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""

        def lost() -> None:
            done(dict.fromkeys(entry.partitions, Error.UNKNOWN_SERVER_ERROR))

        self._markers.add(entry, done, lost, NO_SOURCE, now)

    def verify(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        """Ask the coordinator, here or on another broker, whether the producer's transaction has the partition."""
        refusal = self.machine.refusal(producer.transactional_id)
        if not self.machine.partitions:
            done(Error.COORDINATOR_NOT_AVAILABLE)
            return
        if refusal is not Error.NOT_COORDINATOR:
            done(self.machine.verify(producer, [partition])[partition])
            return
        info = self._snapshot.partition(TRANSACTIONS, self.machine.partition_of(producer.transactional_id))
        verification = PendingVerification(producer, partition, lambda error: self._verified(verification, error, done))
        self._requested_ids.add(verification)
        if (
            info is None
            or info.leader in (-1, self._channels.own)
            or not self._verifications.send(info.leader, verification)
        ):
            verification.done(Error.COORDINATOR_NOT_AVAILABLE)

    def _verified(self, verification: PendingVerification, error: Error, done: Callable[[Error], None]) -> None:
        """Take the other broker's answer; ask again if a marker was written here since, which it may not know."""
        self._requested_ids.discard(verification)
        if verification.stale and not error:
            self.verify(verification.producer, verification.partition, done)
        else:
            done(error)

    def _offsets_ended(self, index: int, producer_id: int) -> None:
        """A marker was written to `__consumer_offsets`. (storage.log.transactions.may_open handles other topics.)"""
        for verification in self._requested_ids:
            if verification.partition == (OFFSETS, index) and verification.producer.id == producer_id:
                verification.stale = True

    def follow(self, snapshot: Snapshot, now: Now) -> None:
        """Take over a new snapshot."""
        self._snapshot = snapshot
        self._channels.follow(snapshot)
        self._verifications.follow(snapshot)
        self.topic.follow(snapshot, now)
        self._markers.metadata_changed()

    def poll_timeout(self, now: Now) -> float:
        """Seconds until this has work."""
        if self._writer.is_waiting:
            return BUSY_S
        due = max(0.0, (self.machine.next_ms() - now.steady_ms) / 1000)
        waits = self._markers.poll_timeout(now)
        verification_ms = self._verifications.due_ms
        verification_s = None if verification_ms is None else max(0.0, (verification_ms - now.steady_ms) / 1000)
        return min(wait for wait in (due, waits, verification_s) if wait is not None)

    def turn(self, now: Now, deliver: Callable[[Answer], None]) -> None:
        """Handle deadlines, then effects until all that is left waits for others."""
        self._now = now
        self.machine.tick(now)
        self._settle(now, deliver)
        self._markers.write(now)
        self._verifications.tick(now.steady_ms)
        self._settle(now, deliver)

    def _settle(self, now: Now, deliver: Callable[[Answer], None]) -> None:
        def do(effect: Any) -> None:
            self._do(effect, now, deliver)

        settle(self.machine, do, self._writer, self._log, now)

    def _do(self, effect: Any, now: Now, deliver: Callable[[Answer], None]) -> None:
        if isinstance(effect, Answer):
            deliver(effect)
        elif isinstance(effect, Append):
            self._writer.add(effect, now)
        elif isinstance(effect, Reload):
            self.topic.reload(effect.key)
        elif isinstance(effect, Markers):
            self._mark(effect)
        elif isinstance(effect, NeedIds):
            self._controller.request(internal.PRODUCER_IDS, {}, self._ids_arrived)

    def _mark(self, markers: Markers) -> None:
        """Write markers with the leader epoch of the term that read or wrote the decision; a former one's is lower."""
        _, producer_id, epoch, commit, partitions = markers
        source = self.machine.partition_of(markers.transactional_id)
        if self._log.epoch(source) < 0:
            return
        entry = TxnMarkerEntry(producer_id, epoch, self._log.epoch(source), commit, partitions)
        self._markers.add(entry, partial(self._marked, markers), partial(self._lost, markers), source, self._now)

    def _lost(self, markers: Markers) -> None:
        self.machine.reset(markers.transactional_id, self._now)

    def _marked(self, markers: Markers, _results: dict[TopicPartition, Error]) -> None:
        self.machine.markers_written(markers, self._now)

    def _ids_arrived(self, answer: dict[str, Any] | None) -> None:
        found = answer or {}
        self.machine.take_ids(found.get("first", 0), found.get("count", 0), self._now)


def transaction_config(config: Any) -> TransactionConfig:
    """The config of transactions in a broker's configuration."""
    return TransactionConfig(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expiry_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )
