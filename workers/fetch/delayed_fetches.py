"""Fetches that wait for records (long poll).

A parked fetch asks to be rung for each of its slots (`Slot.wait`), fences, looks again, and only then sleeps: an
appender publishes before it looks at the waiter bytes, so one of the two sees the other. A ring says "something
changed": each slot's sequence word tells which, and its waiter byte whether it will ring again. Ten times a second all
are compared without a ring, since who was to ring may have died first: those of many slots by their regions' sequence
words in one piece. Whether each is still asked to ring is looked at once a second: the death between clearing a waiter
byte and ringing, with a comparison between the two, is all that could leave one silent.
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
_MANY = 64  # slots: fewer are compared as fast one by one
_WHOLE = 10  # of so many comparisons one is of each slot


class Parked(Protocol):
    """A waiting request."""

    slots: list[Slot]
    deadline: float  # where one is parked again and again, it never goes back
    finished: bool
    queued: bool  # of the parking: there is an entry for it among the deadlines

    @property
    def waits_for(self) -> int:
        """Changes of which kind it wants to look at (ipc.slots: ANYTHING or GROWTH)."""

    def find_slots(self) -> list[Slot]:
        """Where its partitions are by the current metadata."""

    def look(self) -> bool:
        """Something changed: whether there is enough to answer now."""

    def answer(self) -> None:
        """Answer what `look` has found; it is parked no longer."""

    def expire(self) -> None:
        """Time is up: look once more and answer with what there is."""

    def fail(self, fault: Exception) -> None:
        """One of these raised `fault`, which is logged: it is parked no longer, and nobody may wait for it for good."""


class DelayedFetches:
    """A worker's parked requests."""

    def __init__(self, role: int) -> None:
        self._role = role
        self._by_slot: dict[Slot, dict[Parked, None]] = {}
        self._seen: dict[Slot, int] = {}
        self._wanted: dict[Slot, int] = {}  # which changes those who wait for a slot, or did, have asked for
        self.deadlines: list[tuple[float, int, Parked]] = []
        self._regions: dict[int, memoryview] = {}  # the words of all regions in which a slot was ever watched
        self._compared: list[bytes] = []  # their sequences at the last comparison
        self._until_whole = 0
        self._numbers = itertools.count()
        self._parked = 0

    def __len__(self) -> int:
        return self._parked

    def park(self, request: Parked) -> None:
        """Wait for a change of any of `request.slots`, unless one happened meanwhile.

        A slot that is watched is sure to ring: whatever was published since the request looked is found then.
        """
        request.finished = False
        self._parked += 1
        if not request.queued:
            self._queue(request)
        if self._attach(request):
            memory_order.fence()
            self._look((request,))

    def _queue(self, request: Parked) -> None:
        request.queued = True
        heapq.heappush(self.deadlines, (request.deadline, next(self._numbers), request))

    def _attach(self, request: Parked) -> bool:
        """Have the slots ring; False when all were asked to before, and are watched.

        One that is not watched may still ring for a request that is gone, and that ring be on its way: it says nothing.
        """
        asked, role, by_slot, seen, wanted = False, self._role, self._by_slot, self._seen, self._wanted
        for slot in request.slots:
            waiting = by_slot.get(slot)
            if waiting is None:
                by_slot[slot] = {request: None}
                self._regions[id(slot.words)] = slot.words
                seen[slot] = slot.words[slot.at]
                wanted[slot] = request.waits_for
                slot.wait(role, request.waits_for)
                asked = True
            else:
                waiting[request] = None
                wanted[slot] = what = min(wanted[slot], request.waits_for)
                asked = slot.wait(role, what) or asked
        return asked

    def _detach(self, request: Parked) -> None:
        by_slot, seen = self._by_slot, self._seen
        for slot in request.slots:
            waiting = by_slot.get(slot)
            if waiting is not None:
                waiting.pop(request, None)
                if not waiting:
                    del by_slot[slot], seen[slot], self._wanted[slot]

    def forget(self, request: Parked) -> None:
        """`request` is answered, or its client is gone."""
        if request.finished:
            return
        request.finished = True
        self._parked -= 1
        self._compact()
        self._detach(request)

    def _compact(self) -> None:
        """Finished requests leave the heap at their deadline; a client may have set that weeks away."""
        if len(self.deadlines) > _LEAST_HEAP + 2 * self._parked:
            for entry in self.deadlines:
                entry[2].queued = not entry[2].finished
            self.deadlines[:] = [entry for entry in self.deadlines if entry[2].queued]
            heapq.heapify(self.deadlines)

    def rung(self) -> None:
        """Look at every request one of whose slots has changed; those that still wait ask to be rung again."""
        self._look_at_changed(self._seen)
        role = self._role
        silent = [slot for slot, what in self._wanted.items() if slot.wait(role, what)]
        if silent:
            memory_order.fence()
            self._look_at_changed({slot: self._seen[slot] for slot in silent})

    def compare(self) -> None:
        """Ten times a second: `rung`, unless no slot has been published since the last time."""
        if len(self._seen) > _MANY:
            sequences = [words[SEQUENCE::STRIDE].tobytes() for words in self._regions.values()]  # before any look
            self._until_whole -= 1
            if sequences == self._compared and self._until_whole > 0:
                return
            self._compared, self._until_whole = sequences, _WHOLE
        self.rung()

    def _look_at_changed(self, seen: dict[Slot, int]) -> None:
        for slot in [slot for slot, sequence in seen.items() if slot.words[slot.at] != sequence]:
            self._changed(slot)

    def all_changed(self) -> None:
        """The metadata changed: topics may be gone, or in other slots since they were made anew."""
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
        self._look(requests)

    def _changed(self, slot: Slot) -> None:
        if slot in self._seen:
            self._seen[slot] = slot.sequence
            self._look(list(self._by_slot[slot]))

    def _look(self, requests: Iterable[Parked]) -> None:
        for request in requests:
            try:
                if not request.finished and request.look():
                    self.forget(request)  # first: once answered, it may be parked again at once
                    request.answer()
            except Exception as fault:
                self._failed(request, fault)

    def _failed(self, request: Parked, fault: Exception) -> None:
        """A fault of ours costs who waits for this request, not the others."""
        log.exception("unexpected error in a delayed request")
        self.forget(request)
        request.fail(fault)

    def expire(self, now: float) -> None:
        """Answer the requests whose time is up."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][0] <= now:
            request = heapq.heappop(deadlines)[2]
            request.queued = False
            if request.finished:
                continue
            if request.deadline > now:  # parked anew since
                self._queue(request)
            else:
                self.answer_now(request)

    def answer_now(self, request: Parked) -> None:
        """Have it look once more and answer, before its time if need be."""
        self.forget(request)
        try:
            request.expire()
        except Exception as fault:
            self._failed(request, fault)

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do next (monotonic seconds)."""
        deadlines = self.deadlines
        return deadlines[0][0] if deadlines else None

    def hurry(self) -> None:
        """The worker drains: answer all now, but for who waits again."""
        requests = self._waiting()
        for entry in self.deadlines:
            entry[2].queued = False
        self.deadlines.clear()
        for request in requests:
            self.answer_now(request)

    def _waiting(self) -> list[Parked]:
        return [entry[2] for entry in self.deadlines if not entry[2].finished]
