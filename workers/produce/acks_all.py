"""Waiting for followers: acks=all is answered once the high watermark has passed the batch.

The batches of one append wait together, like a delayed fetch (workers.dispatch.purgatory). The process that moves the
high watermark publishes it and rings: a worker that serves a follower's fetch, or the controller process that shrinks
the ISR. The batches are refused when this broker no longer leads, or leads again after another broker did: their fate
is unknown then. Only what the answers need is kept, no records. When batches time out after a long wait, a log line
says what they wait for.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from odradek.ipc import replicas, slots
from odradek.protocol import errors
from odradek.workers.dispatch.partition_check import refusal
from odradek.workers.produce.batching import refuse

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.services import Services
    from odradek.workers.produce.batching import Batching, PendingBatch, Waiting

log = logging.getLogger(__name__)

LONG_S = 10.0  # shorter timeouts are not worth a log line: clients set short ones
EXPLAIN_S = 5.0  # between two explanations of a worker, for all partitions
_NO_RECORDS = memoryview(b"")


class AcksAll:
    """A worker's batches that wait for followers."""

    def __init__(self, services: Services, batching: Batching) -> None:
        self.services = services
        self.batching = batching
        self.next_explanation = 0.0  # the earliest time for the next one

    def wait(self, partition: Partition, batches: list[PendingBatch], led_since: int, waiting: Waiting) -> None:
        """Decide the appended `batches` once the followers have them; `led_since`: the slot's value at the append."""
        delayed = DelayedProduce(self, partition, batches, led_since, waiting)
        if not delayed.try_complete():
            self.services.purgatory.watch(delayed)


class DelayedProduce:
    """Batches of one append, until the last one is decided (workers.dispatch.purgatory.DelayedOperation)."""

    __slots__ = (
        "_acks_all",
        "_batches",
        "_first_end",
        "_last_end",
        "_led_since",
        "_partition",
        "_sequence",
        "_since",
        "_waiting",
        "deadline",
        "finished",
        "queued",
        "slots",
    )  # fmt: skip

    waits_for = slots.ANYTHING

    def __init__(
        self, acks_all: AcksAll, partition: Partition, batches: list[PendingBatch], led_since: int, waiting: Waiting
    ) -> None:  # fmt: skip
        self._acks_all = acks_all
        self._partition = partition
        self._led_since = led_since
        self._since = time.monotonic()
        self._waiting = waiting
        self._sequence = -1  # of the slot at the last try
        self.slots = [partition.slot]
        self.finished = self.queued = False
        for batch in batches:
            batch.view = _NO_RECORDS
        self._keep(batches)

    def _keep(self, batches: list[PendingBatch]) -> None:
        """Keep the batches that still wait; a retried batch may end before those ahead of it."""
        self._batches = batches
        ends = [batch.base_offset + batch.count for batch in batches]
        self._first_end, self._last_end = min(ends), max(ends)
        self.deadline = min(self._deadline(batch) for batch in batches)

    def _deadline(self, batch: PendingBatch) -> float:
        return self._since + batch.target.timeout_ms / 1000

    def find_slots(self) -> list[Slot]:
        return self.slots

    def try_complete(self) -> bool:
        """Decide the batches that can be decided; returns whether those were all."""
        slot = self._partition.slot
        if slot.words[slot.at] == self._sequence:
            return False
        self._sequence = slot.words[slot.at]
        values = slot.read()
        error = self._lost(values)
        if error:
            refuse(self._batches, error)
            return self._decided(self._batches, [])
        hw = values[slots.F_HW]
        if hw < self._first_end:
            return False
        if hw >= self._last_end:
            reached, rest = self._batches, []
        else:
            reached = [batch for batch in self._batches if batch.base_offset + batch.count <= hw]
            rest = [batch for batch in self._batches if batch.base_offset + batch.count > hw]
        if values[slots.F_HW_QUORUM] < values[slots.F_MIN_ISR]:
            refuse(reached, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self._decided(reached, rest)

    def _lost(self, values: tuple[int, ...]) -> int:
        """The error that ends the wait for followers, or NONE."""
        error = refusal(self._partition, values, -1)
        return error or (errors.NONE if values[slots.F_LED_SINCE] == self._led_since else errors.NOT_LEADER_OR_FOLLOWER)

    def _decided(self, batches: list[PendingBatch], rest: list[PendingBatch]) -> bool:
        if rest:
            self._keep(rest)
        self._acks_all.batching.complete(batches, self._waiting)
        return not rest

    def answer(self) -> None:
        """`try_complete` has decided all batches; the end of the round answers them."""

    def fail(self, fault: Exception) -> None:
        """The batches are in the log, but it is unknown whether the followers have them."""
        refuse(self._batches, errors.UNKNOWN_SERVER_ERROR)
        self._acks_all.batching.complete(self._batches, self._waiting)

    def expire(self) -> None:
        """Time out the batches that have waited as long as their requests allow; none yet, if the worker drains."""
        if self.try_complete():
            return
        now = time.monotonic()
        late = [batch for batch in self._batches if self._deadline(batch) <= now]
        rest = [batch for batch in self._batches if self._deadline(batch) > now]
        if late and now - self._since >= LONG_S and now >= self._acks_all.next_explanation:
            self._acks_all.next_explanation = now + EXPLAIN_S
            self._explain(now - self._since, max(batch.base_offset + batch.count for batch in late))
        refuse(late, errors.REQUEST_TIMED_OUT)
        if not self._decided(late, rest):
            self._acks_all.services.purgatory.watch(self)

    def _explain(self, waited: float, end: int) -> None:
        """Log why nothing was acknowledged: the slot, which decides it, and the metadata, which may differ."""
        partition, snapshot = self._partition, self._acks_all.services.snapshot
        state = partition.state()
        ends = {r.broker: r.leo for r in replicas.read(partition.slot) if r.isr_status != replicas.OUT}
        info = snapshot.partition(partition.topic, partition.index)
        log.warning(
            "%r: acks=all timed out after %.0f s: high watermark %d, required %d, log end %d; "
            "log ends of followers in or joining the ISR %s (-1: has not fetched yet), ISR size %d, "
            "min.insync.replicas=%d, leader epoch %d; metadata version %d: ISR %s, controller %d",
            partition, waited, state.hw, end, state.leo, ends, state.isr_count, state.min_isr,
            state.leader_epoch, snapshot.version, info and list(info.isr), snapshot.controller_id,
        )  # fmt: skip
