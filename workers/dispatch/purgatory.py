"""The purgatory: delayed fetches, which wait for records (long poll), and other requests that wait for partitions.

A delayed fetch registers as a waiter in each of its slots (`Slot.wait`), fences, reads again, and only then sleeps: an
appender publishes before it reads the waiter bytes, so one of the two sees the other. A ring says "something changed":
each slot's sequence word shows which one, and its waiter byte whether it will ring again. Ten times a second all slots
are compared without a ring, since the process that was to ring may have died first; if there are many, by their
regions' sequence words in one piece. Once a second every slot's registration is checked: a slot stays silent only if a
process dies between clearing a waiter byte and ringing, with a comparison in between.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Iterable
from typing import Protocol

from odradek.ipc import memory_order
from odradek.ipc.slots import SEQUENCE, STRIDE, Slot

log = logging.getLogger(__name__)

_LEAST_HEAP = 256
_MANY = 64  # slots: fewer are compared just as fast one by one
_WHOLE = 10  # every so many comparisons, one checks each slot


class DelayedOperation(Protocol):
    """A request that waits (Kafka's DelayedOperation)."""

    slots: list[Slot]
    deadline: float  # of a request that is delayed repeatedly: it never decreases
    finished: bool
    queued: bool  # set by Purgatory: `deadlines` has an entry for it

    @property
    def waits_for(self) -> int:
        """The kind of changes that it waits for (ipc.slots: ANYTHING or GROWTH)."""

    def find_slots(self) -> list[Slot]:
        """The slots of its partitions by the current metadata."""

    def try_complete(self) -> bool:
        """Read again after a change; returns whether there is enough to answer now."""

    def answer(self) -> None:
        """Answer with what `try_complete` has found; the request is no longer delayed."""

    def expire(self) -> None:
        """The deadline has passed: read once more and answer with what there is."""

    def fail(self, fault: Exception) -> None:
        """A method raised `fault`, which is logged: the request is no longer delayed, and its client must not hang."""


class Purgatory:
    """A worker's delayed operations."""

    def __init__(self, role: int) -> None:
        self._role = role
        self._by_slot: dict[Slot, dict[DelayedOperation, None]] = {}
        self._seen: dict[Slot, int] = {}
        self._waits_for: dict[Slot, int] = {}  # the changes that a slot's waiters, past ones too, have registered for
        self.deadlines: list[tuple[float, int, DelayedOperation]] = []
        self._regions: dict[int, memoryview] = {}  # the words of all regions that ever had a watched slot
        self._compared: list[bytes] = []  # their sequences at the last comparison
        self._until_whole = 0
        self._numbers = itertools.count()
        self._delayed = 0

    def __len__(self) -> int:
        return self._delayed

    def watch(self, request: DelayedOperation) -> None:
        """Wait for a change of any of `request.slots`, unless one happened meanwhile.

        A watched slot is certain to ring: the ring finds everything published since the request read its slots.
        """
        request.finished = False
        self._delayed += 1
        if not request.queued:
            self._queue(request)
        if self._attach(request):
            memory_order.fence()
            self._retry((request,))

    def _queue(self, request: DelayedOperation) -> None:
        request.queued = True
        heapq.heappush(self.deadlines, (request.deadline, next(self._numbers), request))

    def _attach(self, request: DelayedOperation) -> bool:
        """Register with the slots; False when all were registered before, and are watched.

        An unwatched slot may still ring for a request that is gone: a ring under way proves nothing.
        """
        registered, role, by_slot, seen, waits_for = False, self._role, self._by_slot, self._seen, self._waits_for
        for slot in request.slots:
            waiting = by_slot.get(slot)
            if waiting is None:
                by_slot[slot] = {request: None}
                self._regions[id(slot.words)] = slot.words
                seen[slot] = slot.words[slot.at]
                waits_for[slot] = request.waits_for
                slot.wait(role, request.waits_for)
                registered = True
            else:
                waiting[request] = None
                waits_for[slot] = what = min(waits_for[slot], request.waits_for)
                registered = slot.wait(role, what) or registered
        return registered

    def _detach(self, request: DelayedOperation) -> None:
        by_slot, seen = self._by_slot, self._seen
        for slot in request.slots:
            waiting = by_slot.get(slot)
            if waiting is not None:
                waiting.pop(request, None)
                if not waiting:
                    del by_slot[slot], seen[slot], self._waits_for[slot]

    def remove(self, request: DelayedOperation) -> None:
        """Remove `request`, which is answered, or whose client is gone."""
        if request.finished:
            return
        request.finished = True
        self._delayed -= 1
        self._compact()
        self._detach(request)

    def _compact(self) -> None:
        """Drop finished requests, which leave the heap only at their deadline: a client may set that weeks ahead."""
        if len(self.deadlines) > _LEAST_HEAP + 2 * self._delayed:
            for entry in self.deadlines:
                entry[2].queued = not entry[2].finished
            self.deadlines[:] = [entry for entry in self.deadlines if entry[2].queued]
            heapq.heapify(self.deadlines)

    def on_wakeup(self) -> None:
        """On a ring: retry every request with a changed slot; slots with waiters are registered again."""
        self._retry_changed(self._seen)
        role = self._role
        silent = [slot for slot, what in self._waits_for.items() if slot.wait(role, what)]
        if silent:
            memory_order.fence()
            self._retry_changed({slot: self._seen[slot] for slot in silent})

    def compare(self) -> None:
        """Ten times a second: call `on_wakeup`, unless no slot was published since the last comparison."""
        if len(self._seen) > _MANY:
            sequences = [words[SEQUENCE::STRIDE].tobytes() for words in self._regions.values()]  # read before any retry
            self._until_whole -= 1
            if sequences == self._compared and self._until_whole > 0:
                return
            self._compared, self._until_whole = sequences, _WHOLE
        self.on_wakeup()

    def _retry_changed(self, seen: dict[Slot, int]) -> None:
        for slot in [slot for slot, sequence in seen.items() if slot.words[slot.at] != sequence]:
            self._changed(slot)

    def all_changed(self) -> None:
        """The metadata changed: topics may be gone, or recreated in other slots."""
        requests = self._waiting()
        if not requests:
            return
        for request in requests:
            self._detach(request)
            try:
                request.slots = request.find_slots()
                self._attach(request)
            except Exception as fault:
                self._failed(request, fault)
        memory_order.fence()
        self._retry(requests)

    def _changed(self, slot: Slot) -> None:
        if slot in self._seen:
            self._seen[slot] = slot.sequence
            self._retry(list(self._by_slot[slot]))

    def _retry(self, requests: Iterable[DelayedOperation]) -> None:
        for request in requests:
            try:
                if not request.finished and request.try_complete():
                    self.remove(request)  # first: the answer may delay it again at once
                    request.answer()
            except Exception as fault:
                self._failed(request, fault)

    def _failed(self, request: DelayedOperation, fault: Exception) -> None:
        """A bug costs the client of this request, not the others."""
        log.exception("unexpected error in a delayed request")
        self.remove(request)
        request.fail(fault)

    def expire(self, now: float) -> None:
        """Answer the requests whose deadline has passed."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][0] <= now:
            request = heapq.heappop(deadlines)[2]
            request.queued = False
            if request.finished:
                continue
            if request.deadline > now:  # delayed again since
                self._queue(request)
            else:
                self.answer_now(request)

    def answer_now(self, request: DelayedOperation) -> None:
        """Let the request read once more and answer, even before its deadline."""
        self.remove(request)
        try:
            request.expire()
        except Exception as fault:
            self._failed(request, fault)

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do next (monotonic seconds)."""
        deadlines = self.deadlines
        return deadlines[0][0] if deadlines else None

    def answer_all(self) -> None:
        """The worker drains: answer all requests now, except those that are delayed again."""
        requests = self._waiting()
        for entry in self.deadlines:
            entry[2].queued = False
        self.deadlines.clear()
        for request in requests:
            self.answer_now(request)

    def _waiting(self) -> list[DelayedOperation]:
        return [entry[2] for entry in self.deadlines if not entry[2].finished]
