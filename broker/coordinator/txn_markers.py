"""Writes the markers that end transactions: into partitions that this broker leads, and to the leaders of the others.

A marker is done when all in-sync replicas, at least min.insync.replicas, have it. A marker for a locked partition is
retried after a millisecond, a failed one after a tenth of a second and on every metadata change, as long as this broker
coordinates the transaction. A successor finds the decision in `__transaction_state` and starts over; a duplicate marker
does no harm. A deleted partition needs no marker. Where a later epoch of the producer has an open transaction (possible
without transaction.partition.verification.enable), the former epoch's marker is refused; it waits until that
transaction has ended, and so does the coordinator's transaction. Markers for `__consumer_offsets` wait until it is
loaded and the offsets that they end are written.

Markers requested by another broker's coordinator are tried for at most a second: it asks again, and by then knows the
right leader. An exception affects only its own transaction, which is read again and whose markers start over; another
broker's coordinator gets UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.coordinator.txn_marker_channel import TxnMarkerChannels
from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.events import Now
from odradek.groups.groups import Groups
from odradek.groups.offsets import TopicPartition
from odradek.ipc import memory_order, roles, slots
from odradek.protocol.errors import Error
from odradek.storage.log import control_batch
from odradek.storage.log.partition import LockNotAvailable, Partition
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.coordination import TxnMarkerEntry

log = logging.getLogger(__name__)

BUSY_S, MARK_S = 0.001, 0.05  # until the next check: of a locked partition, of a high watermark without doorbell
SLICE_S = 0.02  # of writing markers, before the groups' next turn
RETRY_MS = 100
FOREIGN_MS = 1_000  # how long other coordinators' markers are tried
METADATA_LAG_MS = 3_000  # how long an unknown partition may merely be missing from the metadata so far
NO_SOURCE = -1

Done = Callable[[dict[TopicPartition, Error]], None]
Lost = Callable[[], None]
Place = tuple[int, TopicPartition]  # a producer id and a partition


class UnreplicatedMarker(NamedTuple):
    """A marker in the log of a partition that this broker leads since epoch `led_since`."""

    partition: Partition
    led_since: int
    end: int


class PendingCompleteTxn:
    """Markers of one transaction in progress.

    `source`: the partition of `__transaction_state` that has the decision; the markers are tried until all are written.
    NO_SOURCE: another coordinator has it, and gets the failures up to `deadline_ms`.
    """

    __slots__ = (
        "deadline_ms",
        "done",
        "entry",
        "in_flight",
        "lost",
        "not_before_ms",
        "results",
        "since_ms",
        "source",
        "todo",
        "unreplicated",
    )  # fmt: skip

    def __init__(self, entry: TxnMarkerEntry, done: Done, lost: Lost, source: int, now: Now) -> None:
        self.entry = entry
        self.done = done
        self.lost = lost
        self.source = source
        self.todo = set(entry.partitions)
        self.in_flight: set[TopicPartition] = set()  # sent to other brokers
        self.unreplicated: dict[TopicPartition, UnreplicatedMarker] = {}
        self.results: dict[TopicPartition, Error] = {}
        self.since_ms = now.steady_ms
        self.not_before_ms = 0
        self.deadline_ms = now.steady_ms + FOREIGN_MS if source == NO_SOURCE else None

    @property
    def open(self) -> bool:
        """Whether some markers have no outcome yet."""
        return bool(self.todo or self.in_flight or self.unreplicated)


class MarkerWriter:
    """The markers that are not in their partitions yet.

    `must_wait(index, producer id)`: whether a marker for that partition of `__consumer_offsets` must wait. `ended`,
    with the same arguments, is called after one is appended.
    """

    def __init__(
        self, catalog: Catalog, groups: Groups, must_wait: Callable[[int, int], bool], channels: TxnMarkerChannels,
        ended: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._groups = groups
        self._must_wait = must_wait
        self._ended = ended
        self._channels = channels
        self._own: int = channels.own
        self._txns: dict[PendingCompleteTxn, None] = {}
        self._own_txns: dict[tuple[int, int], PendingCompleteTxn] = {}  # those with a source: by source and producer id
        self._foreign_txns: dict[Place, dict[PendingCompleteTxn, None]] = {}  # those of other coordinators, by place
        self._now = Now(0, 0)
        self._until = 0.0  # monotonic seconds
        channels.markers.listener = self._on_outcome

    def add(self, entry: TxnMarkerEntry, done: Done, lost: Lost, source: int, now: Now) -> None:
        """Write these at the next `write`; `done` gets each partition's outcome, or `lost` is called on an exception.

        A coordinator that asks again has given up its former request, whose markers are no longer tried: written after
        the new ones are answered, they would end the producer's next transaction. An administrator's request replaces
        none. Likewise, a transaction of ours that was reset and read again is not ended twice: its producer continues
        as soon as one of the two is done.
        """
        if source == NO_SOURCE and not entry.only_open:
            self._expire_former(entry)
        txn = PendingCompleteTxn(entry, done, lost, source, now)
        if source == NO_SOURCE:
            for tp in entry.partitions:
                self._foreign_txns.setdefault((entry.producer_id, tp), {})[txn] = None
        else:
            former = self._own_txns.get((source, entry.producer_id))
            if former is not None:
                self._drop(former)
            self._own_txns[source, entry.producer_id] = txn
        self._txns[txn] = None

    def _expire_former(self, entry: TxnMarkerEntry) -> None:
        """Give up only markers of the same places: one request may have twenty thousand markers of one producer."""
        for tp in entry.partitions:
            for txn in self._foreign_txns.pop((entry.producer_id, tp), ()):
                if tp in txn.todo:
                    txn.todo.discard(tp)
                    txn.results[tp] = Error.REQUEST_TIMED_OUT

    def forget(self, source: int) -> None:
        """Another broker now ends the transactions of this partition of `__transaction_state`."""
        for txn in [txn for txn in self._txns if txn.source == source]:
            self._drop(txn)

    def _drop(self, txn: PendingCompleteTxn) -> None:
        self._remove(txn)
        self._forget_sent(txn)

    def _remove(self, txn: PendingCompleteTxn) -> None:
        self._txns.pop(txn, None)
        key = txn.source, txn.entry.producer_id
        if self._own_txns.get(key) is txn:
            del self._own_txns[key]
        if txn.source == NO_SOURCE:
            for tp in txn.entry.partitions:
                self._forget_place(txn, (txn.entry.producer_id, tp))

    def _forget_place(self, txn: PendingCompleteTxn, place: Place) -> None:
        same = self._foreign_txns.get(place, {})
        same.pop(txn, None)
        if not same:
            self._foreign_txns.pop(place, None)

    def _forget_sent(self, txn: PendingCompleteTxn) -> None:
        self._channels.forget(lambda marker: marker[0] is txn)

    def metadata_changed(self) -> None:
        """Leaders may have changed: retry everything that is not in flight, at once."""
        for txn, tp in self._channels.take_queued():
            txn.in_flight.discard(tp)
            txn.todo.add(tp)
        for txn in self._txns:
            txn.not_before_ms = 0

    def write(self, now: Now) -> None:
        """Try all markers that are due, or some of them: the rest comes first the next time."""
        self._now, self._until = now, time.monotonic() + SLICE_S
        for txn in [txn for txn in self._txns if txn.todo and txn.not_before_ms <= now.steady_ms]:
            self._guarded(txn, self._write_txn)
            if txn in self._txns:
                self._txns[txn] = self._txns.pop(txn)
            if time.monotonic() >= self._until:
                break
        self._channels.tick(now.steady_ms)
        for txn in [txn for txn in self._txns if txn.unreplicated or txn.deadline_ms is not None or not txn.open]:
            self._guarded(txn, self._check)

    def _guarded(self, txn: PendingCompleteTxn, step: Callable[[PendingCompleteTxn], None]) -> None:
        """An exception in one transaction does not affect the others."""
        try:
            step(txn)
        except Exception:
            log.exception(
                "unexpected error while writing markers of producer %d: reloading its transaction",
                txn.entry.producer_id,
            )
            self._drop(txn)
            self._report_lost(txn)

    def _report_lost(self, txn: PendingCompleteTxn) -> None:
        try:
            txn.lost()
        except Exception:
            log.exception("unexpected error while reporting the markers of producer %d", txn.entry.producer_id)

    def _write_txn(self, txn: PendingCompleteTxn) -> None:
        for tp in list(txn.todo):
            if txn in self._txns:  # another coordinator's transaction is dropped at the first refusal
                self._write_one(txn, tp)
            if time.monotonic() >= self._until:
                return

    def poll_timeout(self, now: Now) -> float | None:
        """Seconds until `write` should be called again, None when there is nothing to write."""
        waits = [wait for txn in self._txns if (wait := _poll_timeout(txn, now)) is not None]
        due = self._channels.due_ms
        if due is not None:
            waits.append(max(0.0, (due - now.steady_ms) / 1000))
        return min(waits, default=None)

    # -- one marker

    def _write_one(self, txn: PendingCompleteTxn, tp: TopicPartition) -> None:
        info = self._catalog.snapshot.partition(*tp)
        if txn.source != NO_SOURCE and info is not None and info.leader not in (self._own, -1):
            if self._channels.send(info.leader, (txn, tp)):
                txn.todo.discard(tp)
                txn.in_flight.add(tp)
            else:
                self._delay(txn)
        elif not (tp[0] == OFFSETS and self._must_wait(tp[1], txn.entry.producer_id)):
            self._write_here(txn, tp)

    def _write_here(self, txn: PendingCompleteTxn, tp: TopicPartition) -> None:
        partition = self._catalog.log.get(*tp)
        try:
            if partition is None:
                raise _Refused(Error.UNKNOWN_TOPIC_OR_PARTITION)
            awaited = self._append(partition, txn.entry)
        except LockNotAvailable:
            return
        except _Refused as refused:
            if txn.entry.only_open:
                log.warning(
                    "%s-%d: rejected an abort of producer %d, epoch %d: its sender is not a registered broker, and no "
                    "such transaction is open here", *tp, txn.entry.producer_id, txn.entry.epoch
                )  # fmt: skip
            self._failed(txn, tp, refused.error)
            return
        txn.todo.discard(tp)
        txn.unreplicated[tp] = awaited
        if tp[0] == OFFSETS:
            self._ended(tp[1], txn.entry.producer_id)

    def _append(self, partition: Partition, entry: TxnMarkerEntry) -> UnreplicatedMarker:
        """Write it within one term, checked before and after. LockNotAvailable, or _Refused with the reason."""
        led_since = _led_since(partition)
        producer_id, epoch, coordinator_epoch, commit, _, only_open = entry
        error = control_batch.write_marker(
            partition, producer_id, epoch, coordinator_epoch, commit, self._now.wall_ms, only_open
        )
        if error:
            raise _Refused(Error(error))
        values = partition.slot.read()
        if not _is_led(partition, values, led_since):
            raise _Refused(Error.NOT_LEADER_OR_FOLLOWER)
        return UnreplicatedMarker(partition, led_since, values[slots.F_LEO])

    def _failed(self, txn: PendingCompleteTxn, tp: TopicPartition, error: Error) -> None:
        """Retry a marker, unless it is not needed or another coordinator has to retry it."""
        txn.in_flight.discard(tp)
        txn.unreplicated.pop(tp, None)
        if txn.source == NO_SOURCE or self._is_settled(txn, tp, error):
            txn.todo.discard(tp)
            txn.results[tp] = Error.INVALID_PRODUCER_EPOCH if error is Error.INVALID_TXN_STATE else error
        elif error is Error.TRANSACTION_COORDINATOR_FENCED:
            log.warning("%s-%d: another broker coordinates the transaction of producer %d", *tp, txn.entry.producer_id)
            self._drop(txn)
        else:
            if not txn.not_before_ms:
                self._log_waiting(txn, tp, error)
            txn.todo.add(tp)
            self._delay(txn)

    @staticmethod
    def _log_waiting(txn: PendingCompleteTxn, tp: TopicPartition, error: Error) -> None:
        if error is Error.INVALID_TXN_STATE:
            log.error(
                "%s-%d: rejected the marker of producer %d, epoch %d: a later epoch has written. If it left a "
                "transaction open, abort that one (kafka-transactions.sh)", *tp, txn.entry.producer_id,
                txn.entry.epoch,
            )  # fmt: skip
        else:
            log.info("%s-%d: transaction marker not written yet: %s", *tp, error.name)

    def _delay(self, txn: PendingCompleteTxn) -> None:
        txn.not_before_ms = self._now.steady_ms + RETRY_MS

    def _is_settled(self, txn: PendingCompleteTxn, tp: TopicPartition, error: Error) -> bool:
        """Whether a refused marker is not needed."""
        if error is Error.UNSUPPORTED_FOR_MESSAGE_FORMAT:  # a Kafka broker's: its log cannot hold transactions
            return True
        if error is Error.INVALID_PRODUCER_EPOCH:
            # A later epoch has written here, and no transaction is open.
            log.error("%s-%d: ignored a late transaction marker of producer %d", *tp, txn.entry.producer_id)
            return True
        if self._catalog.snapshot.partition(*tp) is not None:
            return False
        return self._channels.alone or self._now.steady_ms - txn.since_ms >= METADATA_LAG_MS

    # -- outcomes

    def _on_outcome(self, txn: PendingCompleteTxn, tp: TopicPartition, error: Error) -> None:
        """The leader's outcome for a marker; also an error if there was no response."""
        if txn in self._txns:
            self._guarded(txn, lambda txn: self._handle_outcome(txn, tp, error))

    def _handle_outcome(self, txn: PendingCompleteTxn, tp: TopicPartition, error: Error) -> None:
        if error is Error.INVALID_PRODUCER_EPOCH:  # the leader does not say whether a transaction is open
            self._failed(txn, tp, Error.INVALID_TXN_STATE)
        elif error:
            self._failed(txn, tp, error)
        else:
            txn.in_flight.discard(tp)
            txn.results[tp] = Error.NONE

    def _check(self, txn: PendingCompleteTxn) -> None:
        """Check whether all markers of a transaction are done."""
        if txn.unreplicated and not self._is_replicated(txn):
            for awaited in txn.unreplicated.values():
                awaited.partition.slot.wait(roles.COORDINATOR)
            memory_order.fence()
            self._is_replicated(txn)
        if txn.deadline_ms is not None and txn.open and txn.deadline_ms <= self._now.steady_ms:
            for tp in [*txn.todo, *txn.unreplicated]:
                self._failed(txn, tp, Error.REQUEST_TIMED_OUT)
        if not txn.open and txn in self._txns:
            self._remove(txn)
            txn.done(txn.results)

    def _is_replicated(self, txn: PendingCompleteTxn) -> bool:
        """Whether no marker is awaited: high watermarks have passed it, or its leadership was lost."""
        for tp, (partition, led_since, end) in list(txn.unreplicated.items()):
            values = partition.slot.read()
            if not _is_led(partition, values, led_since):
                self._failed(txn, tp, Error.NOT_LEADER_OR_FOLLOWER)
            elif values[slots.F_HW] >= end and values[slots.F_HW_QUORUM] >= values[slots.F_MIN_ISR]:
                self._complete(txn, tp)
        return not txn.unreplicated

    def _complete(self, txn: PendingCompleteTxn, tp: TopicPartition) -> None:
        del txn.unreplicated[tp]
        txn.results[tp] = Error.NONE
        if tp[0] == OFFSETS:
            self._groups.end_transaction(tp[1], txn.entry.producer_id, txn.entry.commit, self._now)


class _Refused(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


def _led_since(partition: Partition) -> int:
    """The epoch since which this broker leads it; _Refused if it does not, or if too few replicas are in sync."""
    values = partition.slot.read()
    if not _is_led(partition, values, values[slots.F_LED_SINCE]):
        offline = values[slots.F_STATE] == slots.OFFLINE
        raise _Refused(Error.KAFKA_STORAGE_ERROR if offline else Error.NOT_LEADER_OR_FOLLOWER)
    if values[slots.F_ISR_COUNT] < values[slots.F_MIN_ISR]:
        raise _Refused(Error.NOT_ENOUGH_REPLICAS)
    return values[slots.F_LED_SINCE]


def _is_led(partition: Partition, values: tuple[int, ...], led_since: int) -> bool:
    same = values[slots.F_INCARNATION] == partition.incarnation and values[slots.F_LED_SINCE] == led_since
    return same and values[slots.F_STATE] == slots.LEADER


def _poll_timeout(txn: PendingCompleteTxn, now: Now) -> float | None:
    waits = []
    if txn.todo:
        waits.append(max(BUSY_S, (txn.not_before_ms - now.steady_ms) / 1000))
    if txn.unreplicated:
        waits.append(MARK_S)
    if txn.deadline_ms is not None:
        waits.append(max(0.0, (txn.deadline_ms - now.steady_ms) / 1000))
    return min(waits, default=None)
