"""Carries out the elected controller's requests (LeaderAndIsr, StopReplica, UpdateMetadata) on this broker, in order.

A request of a superseded controller, or for a former registration of this broker, is refused (KIP-237, KIP-380), even
before the present one exists: its registration will be younger than its earlier writes to ZooKeeper. An overtaken
request is refused too: after a connection is lost, its data may still arrive after what was resent over the next one.
This process publishes its progress (Snapshot.controller_progress) for its successor.
A step that needs a partition lock that is taken waits, and so does everything behind it; a request is answered when it
is carried out. A request of thousands of partitions takes many turns of the loop, so that other requests, ISRs and the
session do not wait; its additions become visible when all are complete (cluster.metadata.view).

A request with another controller epoch than ZooKeeper's is refused; while ZooKeeper is unavailable, the first requests
of a new epoch wait.

A bad request affects only its own partitions: an invalid one (cluster.rules.validation) gets its error code, and so
does a step that fails in any other way, with a trace in the log.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from odradek.broker.controller.replicas import stray_replicas
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.cluster.decisions.broker_request_batch import DURING_DELETE, StopReplica
from odradek.cluster.metadata import view
from odradek.cluster.metadata.snapshot import ControllerProgress
from odradek.cluster.metadata.view import NO_ID, ControllerTerm, PartitionUpdate, View
from odradek.cluster.rules import validation
from odradek.protocol.errors import NONE, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH, UNKNOWN_SERVER_ERROR
from odradek.storage.log.partition import LockNotAvailable

log = logging.getLogger(__name__)

_ANY_BROKER_EPOCH = -1

Errors = dict[tuple[str, int], int]
Done = Callable[[int, Errors], None]  # error code of the whole, error codes of partitions
VerifyEpoch = Callable[[int], bool | None]  # whether that controller epoch is current; None: not known now
Step = Callable[[], int]
Steps = list[tuple[tuple[str, int], Step]]
Fault = tuple[int, str]  # error code and why; see cluster.rules.validation
Faults = list[tuple[tuple[str, int], Fault]]

_WHOLE = ("", 0)  # stands for the whole request among its partitions
_LONGEST = 200  # characters logged for one fault
_MOST_UNVERIFIED = 1000
_MOST_UNVERIFIED_BYTES = 32 << 20  # of their requests
_SLICE_S = 0.025  # of a turn of the loop, plus one step
_SHOWN = 5  # refused partitions named in a log line


class _Request:
    def __init__(
        self, steps: Iterable[tuple[tuple[str, int], Step]], done: Done, progress: ControllerProgress | None = None
    ) -> None:  # fmt: skip
        self.progress = progress  # None: it changes nothing
        self.steps = deque(steps)
        self.errors: Errors = {}
        self.done = done


class ControllerRequests:
    """Requests in progress. `changed()` is called when the view has changed.

    `broker_epoch` is the registration's, 0 without one; `least_epoch` is higher than the epoch of any former
    registration.
    """

    def __init__(
        self, view: View, replicas: ReplicaManager, changed: Callable[[], None],
        verify_epoch: VerifyEpoch = lambda epoch: True,
    ) -> None:  # fmt: skip
        """`verify_epoch` is called for each epoch newer than all before: any sender may claim to be elected."""
        self.controller_epoch = 0
        self.broker_epoch = 0
        self.least_epoch = 0
        self._view = view
        self._replicas = replicas
        self._changed = changed
        self._verify_epoch = verify_epoch
        self._unverified: list[tuple[int, Callable[[], None]]] = []  # sizes and requests of epochs not verified yet
        self._newest = -1  # number of this controller's newest request
        self._queue: deque[_Request] = deque()

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to do."""
        return bool(self._queue)

    def when_done(self, action: Callable[[], None]) -> None:
        """Call `action` when all requests accepted so far are carried out."""
        self._enqueue(_Request((), lambda _error, _errors: action()))

    def resign(self, done: Callable[[], None]) -> None:
        """Stop leading all partitions that others can lead, then call `done`."""
        here = [(topic, index) for topic, index, _ in self._replicas]
        steps = [(one, partial(self._replicas.resign, *one)) for one in here]
        self._enqueue(_Request(steps, lambda _error, _errors: done()))

    def restore_progress(self, progress: ControllerProgress) -> None:
        """Continue after the last request that the former process carried out and published."""
        self.controller_epoch, self._newest = self._view.controller_progress = progress

    def topic_id(self, name: str) -> bytes | None:
        """The id that controller requests gave for a topic."""
        topic = self._view.topics.get(name)
        return None if topic is None or topic["id"] == NO_ID.hex() else bytes.fromhex(topic["id"])

    def leader_and_isr(self, term: ControllerTerm, updates: Sequence[PartitionUpdate], done: Done) -> None:
        """LeaderAndIsr: become leader of some partitions, follower of others."""
        faults = self._check(updates, view.update_error)
        steps = [((one.topic, one.number), self._become_step(one, term.full)) for one in updates]
        self._accept(term, _unless_faulty(steps, faults), done)

    def stop_replica(self, term: ControllerTerm, stops: Sequence[StopReplica], done: Done) -> None:
        """StopReplica: stop some replicas, and delete some of their logs."""
        faults = [(one.partition, validation.place_fault(*one.partition)) for one in stops]
        steps = [(one.partition, self._stop_step(one)) for one in stops]
        self._accept(term, _unless_faulty(steps, faults), done)

    def update_metadata(
        self, term: ControllerTerm, updates: Sequence[PartitionUpdate], brokers: list[dict[str, Any]], done: Done
    ) -> None:
        """UpdateMetadata: live brokers, and the state of partitions anywhere."""
        faults = self._check(updates, lambda one: validation.place_fault(one.topic, one.number))
        steps = [((one.topic, one.number), self._update_step(one, term.full)) for one in updates]
        steps = _unless_faulty(steps, faults)
        if term.full:
            steps.append((_WHOLE, self._set_aside_strays_step(updates)))
        shown = (_WHOLE, self._show_step({one.topic for one in updates}))
        self._accept(term, [(_WHOLE, self._set_brokers_step(brokers)), *steps, shown], done)

    def _check(self, updates: Sequence[PartitionUpdate], fault: Callable[[PartitionUpdate], Fault]) -> Faults:
        room = validation.PartitionLimit(self._view.topics)
        faults = [((one.topic, one.number), fault(one)) for one in updates]
        return [(one, wrong if wrong[0] else room.fault(*one)) for one, wrong in faults]

    @property
    def unverified(self) -> bool:
        """Whether `verify` has something to do."""
        return bool(self._unverified)

    def verify(self) -> None:
        """Accept or refuse the requests whose epoch waits for verification."""
        waiting, self._unverified = self._unverified, []
        for _, take in waiting:
            take()

    def _accept(self, term: ControllerTerm, steps: Steps, done: Done) -> None:
        refusal = self._rejection(term)
        if refusal == NONE and term.epoch > self.controller_epoch:
            known = self._verify_epoch(term.epoch)
            if known is None and self._may_wait(term.size):
                self._unverified.append((term.size, lambda: self._accept(term, steps, done)))
                return
            refusal = NONE if known else STALE_CONTROLLER_EPOCH
        if refusal != NONE:
            log.info("rejected a request of controller %d, epoch %d: %d", term.controller, term.epoch, refusal)
            done(refusal, {})
            return
        self._newest = max(term.number, self._newest if term.epoch == self.controller_epoch else -1)
        self.controller_epoch = term.epoch
        self._view.controller_id = term.controller
        self._enqueue(_Request(steps, done, (self.controller_epoch, self._newest)))

    def _enqueue(self, order: _Request) -> None:
        """Queue a request; behind others it waits for the next `tick`, as they have used this turn's time."""
        self._queue.append(order)
        if len(self._queue) == 1:
            self.tick()

    def _may_wait(self, size: int) -> bool:
        held = sum(size for size, _ in self._unverified)
        return len(self._unverified) < _MOST_UNVERIFIED and held + size <= _MOST_UNVERIFIED_BYTES

    def _rejection(self, term: ControllerTerm) -> int:
        late = term.epoch == self.controller_epoch and 0 <= term.number < self._newest
        if late or term.epoch < self.controller_epoch:
            return STALE_CONTROLLER_EPOCH
        stale = term.broker_epoch < max(self.broker_epoch, self.least_epoch)
        return STALE_BROKER_EPOCH if stale and term.broker_epoch != _ANY_BROKER_EPOCH else NONE

    # -- steps; each may raise LockNotAvailable

    def _become_step(self, update: PartitionUpdate, full: bool) -> Step:
        def become() -> int:
            if full:
                stray_replicas.set_aside_former_topic(self._replicas, update)
            return self._replicas.become(update)

        return become

    def _stop_step(self, stop: StopReplica) -> Step:
        return lambda: self._replicas.stop(*stop.partition, stop.leader_epoch, stop.delete)

    def _set_brokers_step(self, brokers: list[dict[str, Any]]) -> Step:
        def meet() -> int:
            self._view.set_brokers(brokers)
            return NONE

        return meet

    def _show_step(self, topics: set[str]) -> Step:
        def show() -> int:
            self._view.show(topics)
            return NONE

        return show

    def _set_aside_strays_step(self, updates: Sequence[PartitionUpdate]) -> Step:
        def keep() -> int:
            stray_replicas.set_aside_strays(self._replicas, updates)
            return NONE

        return keep

    def _update_step(self, update: PartitionUpdate, full: bool) -> Step:
        def know() -> int:
            if full:
                stray_replicas.set_aside_former_topic(self._replicas, update)
            if update.leader == DURING_DELETE:
                self._delete(update)
            elif not self._replicas.replace_topic(update):
                self._view.apply(update, incomplete=True)
            return NONE

        return know

    def _delete(self, update: PartitionUpdate) -> None:
        if self._view.row(update.topic, update.number) is None:
            self._replicas.retire_passed_over(update.topic, update.number, update.topic_id)
        elif self._replicas.same_topic(update):
            self._replicas.delete_topic(update.topic)

    # -- carrying out

    def tick(self) -> None:
        """Continue until a lock is taken, or for a slice of time; call every millisecond while `waiting`."""
        until = time.monotonic() + _SLICE_S
        while self._queue and self._go_on(self._queue[0], until):
            order = self._queue.popleft()
            if order.progress is not None:
                self._view.controller_progress = order.progress
                self._changed()
            try:
                order.done(NONE, order.errors)
            except Exception:
                log.exception("controller request done, but its response failed")
            if time.monotonic() >= until:
                return

    def _go_on(self, order: _Request, until: float) -> bool:
        while order.steps:
            key, step = order.steps[0]
            try:
                code = step()
            except LockNotAvailable:
                return False
            except Exception:  # it would fail again: later requests must not wait for it
                log.exception("%s-%d: a step of a controller request failed", *key)
                code = UNKNOWN_SERVER_ERROR
            order.steps.popleft()
            if code != NONE:
                order.errors[key] = code
            if time.monotonic() >= until and order.steps:
                return False
        return True


def _unless_faulty(steps: Steps, faults: Faults) -> Steps:
    """The steps, with those of faulty partitions replaced by error codes."""
    wrong = {partition: fault for partition, fault in faults if fault[0] != NONE}
    if wrong:
        text = "; ".join(why[:_LONGEST] for _, why in list(wrong.values())[:_SHOWN])
        log.error("controller request names %d invalid partitions: %s", len(wrong), text)
    return [(key, _refused(wrong[key][0]) if key in wrong else step) for key, step in steps]


def _refused(code: int) -> Step:
    return lambda: code
