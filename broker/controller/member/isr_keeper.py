"""Maintains the ISRs of the partitions that this broker leads in ZooKeeper: shrinks, expands and announces them.

The order of steps is fixed; this process may die after any of them:
  expansion: the high watermark waits for the joining follower (leader_or_follower.await_joining) → the state node is
             written → the follower counts.
  shrinking: the state node is written → the follower no longer counts.
So the tree's ISR, whose members are electable, never has a replica that the high watermark does not wait for. A write
is conditional on the version of the node that was read, and that node must name this broker and its epoch: an election
meanwhile has changed it, and the write is refused.

Where the high watermark waits for others than the known ISR (a write was refused or has an unknown outcome, or this
process died after it), the next check writes what it reads, changed or not, and only a successful write settles it.
Reading alone is not enough: the server may be behind, and even the newest state (`sync`) may be followed by a write of
ours that was in flight when the connection was lost. Of two writes with the same version one is refused; if that is the
later one, the next check reads what the earlier one wrote. The same goes for the ISR size in the slot, which enforces
min.insync.replicas.

A follower must have fetched just now to join: its row outlives it, and says nothing about the log it returns with. That
is no proof, as this process may be stopped or the write slow; a new leader epoch is
(cluster.decisions.broker_epochs). An Apache Kafka controller starts none.
A replica that the controller reports as offline does not join either: a broker in controlled shutdown fetches for a
while after it has left the ISRs, and acks=all would wait for it when it is gone.

The controller learns of a change by a node under /isr_change_notification, and informs all other brokers. If creating
that node fails, the next check creates it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.cluster.metadata.rows import EPOCH, ISR, LEADER, OFFLINE
from odradek.cluster.metadata.view import Row, View
from odradek.cluster.replication import isr as rules
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Create, Set, Tree, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import MalformedNode, PartitionState
from odradek.ipc import replicas as followers
from odradek.ipc import slots
from odradek.ipc.replicas import OUT
from odradek.storage.log import leader_or_follower
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved

log = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.1  # between checks that followers request
_FRESH_MS = 1000  # since a joining follower's fetch; each fetch that allows joining requests a check


class _Change(NamedTuple):
    topic: str
    number: int
    row: Row
    partition: Partition
    joining: list[int]
    leaving: list[int]


class IsrKeeper:
    """Checks all led partitions periodically, and soon after a follower has caught up."""

    def __init__(
        self, view: View, replicas: ReplicaManager, tree: Tree, lag_ms: int, changed: Callable[[], None]
    ) -> None:
        self._view = view
        self._replicas = replicas
        self._tree = tree
        self._lag_ms = lag_ms
        self._changed = changed
        self._check_requested = False
        self._last = 0.0
        self._unapplied: list[tuple[Partition, int, list[int]]] = []  # written, but the lock was taken
        self._unknown_outcome: dict[
            tuple[str, int], int
        ] = {}  # epochs of partitions whose last write has an unknown outcome
        self._unannounced: dict[tuple[str, int], None] = {}  # changed, and not yet announced to the controller

    def request_check(self) -> None:
        """A worker saw a follower that may join."""
        self._check_requested = True

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called in a millisecond."""
        return bool(self._unapplied)

    def due(self) -> float:
        """When the next check is due (monotonic seconds)."""
        return self._last + (_LEAST_PAUSE_S if self._check_requested else max(self._lag_ms / 2000, _LEAST_PAUSE_S))

    def tick(self, now: float) -> None:
        """Check if due and the check before is finished: its rest would undo what this one expects."""
        if self._unapplied:
            self._apply()
        if now >= self.due() and not self._unapplied:
            self._check_requested, self._last = False, now
            self._check()

    def _check(self) -> None:
        changes = [change for one in self._replicas if (change := self._needed_change(*one)) is not None]
        changes = [change for change in changes if self._await_joining(change)]
        try:
            if changes:
                self._write(changes)
            if self._unannounced:
                self._notify()
        except TreeError as error:
            self._check_requested = True
            log.warning("cannot update ISRs: %s", error)

    def _needed_change(self, topic: str, index: int, row: Row) -> _Change | None:
        if row[LEADER] != self._view.broker:
            return None
        partition = self._replicas.partition(topic, index)
        assert partition is not None
        values = partition.slot.read()
        if values[slots.F_STATE] != slots.LEADER or values[slots.F_INCARNATION] != partition.incarnation:
            return None
        known = followers.read(partition.slot)
        hw, start, now_ms = values[slots.F_HW], values[slots.F_EPOCH_START], time.monotonic_ns() // 1_000_000
        fresh = [one for one in known if now_ms - one.seen_ms <= _FRESH_MS]
        joining = rules.joining(fresh, row[ISR], self._eligible(row), hw, start)
        leaving = rules.leaving(known, row[ISR], values[slots.F_LEO], now_ms, self._lag_ms)
        unsure = self._unknown_outcome.get((topic, index)) == row[EPOCH]
        unsure |= any((one.isr_status != OUT) != (one.broker in row[ISR]) for one in known)
        unsure |= values[slots.F_ISR_COUNT] != len(row[ISR])  # a process died between a write and `apply_isr`
        if not (joining or leaving or unsure):
            return None
        return _Change(topic, index, row, partition, joining, leaving)

    def _eligible(self, row: Row) -> Collection[int]:
        """Brokers that may be in the ISR of a partition."""
        offline = row[OFFLINE] if len(row) > OFFLINE else ()
        return self._view.brokers.keys() - set(offline)

    def _await_joining(self, change: _Change) -> bool:
        """Make the high watermark wait for the joining followers; False if the lock is taken.

        It may have advanced since the check, without those that did not count: only followers that reach it now join.
        """
        if not change.joining:
            return True
        try:
            with change.partition.locked() as values:
                if values[slots.F_STATE] != slots.LEADER or values[slots.F_LEADER_EPOCH] != change.row[EPOCH]:
                    return False
                known = [one for one in followers.read(change.partition.slot) if one.broker in change.joining]
                hw, start = values[slots.F_HW], values[slots.F_EPOCH_START]
                change.joining[:] = rules.joining(known, change.row[ISR], self._eligible(change.row), hw, start)
                leader_or_follower.await_joining(change.partition, values, change.joining)
        except (LockNotAvailable, PartitionRemoved, OSError):
            self._check_requested = True
            return False
        return bool(change.joining or change.leaving)

    # -- the tree

    def _write(self, changes: Sequence[_Change]) -> None:
        paths = [znodes.state_path(change.topic, change.number) for change in changes]
        writes, written = [], []
        for change, found, path in zip(changes, self._tree.get_many(paths), paths, strict=True):
            state = _readable(found[0], path) if found else None
            if found is None or state is None or (state.leader, state.leader_epoch) != _leader_and_epoch(change.row):
                continue  # another decision is about to arrive
            members = rules.changed(state.isr, change.joining, change.leaving)
            writes.append([Set(path, znodes.encode_state(state._replace(isr=members)), found[1].version)])
            written.append((change, members))
        for (change, members), result in zip(written, self._tree.each(writes), strict=True):
            if isinstance(result, TreeError):
                self._not_written(change, members, result)
            else:
                self._written(change, members)

    def _not_written(self, change: _Change, members: list[int], error: TreeError) -> None:
        log.info("%s-%d: ISR update to %s rejected: %r", change.topic, change.number, members, error)
        self._check_requested = True
        if isinstance(error, TreeUnavailable):
            self._unknown_outcome[change.topic, change.number] = change.row[EPOCH]

    def _written(self, change: _Change, members: list[int]) -> None:
        self._unknown_outcome.pop((change.topic, change.number), None)
        self._unannounced[change.topic, change.number] = None
        what = "expanded" if change.joining else "shrunk" if change.leaving else "corrected"
        if members != change.row[ISR]:
            log.info("%s-%d: ISR %s from %s to %s", change.topic, change.number, what, change.row[ISR], members)
            self._changed()
        self._unapplied.append((change.partition, change.row[EPOCH], members))
        change.row[ISR] = members
        self._apply()

    def _apply(self) -> None:
        """Apply the tree's ISRs to the partitions; a locked one waits a millisecond."""
        undecided, self._unapplied = self._unapplied, []
        for partition, epoch, members in undecided:
            try:
                with partition.locked() as values:
                    if values[slots.F_STATE] == slots.LEADER and values[slots.F_LEADER_EPOCH] == epoch:
                        leader_or_follower.apply_isr(partition, values, members)
            except LockNotAvailable:
                self._unapplied.append((partition, epoch, members))
            except (PartitionRemoved, OSError) as error:
                log.warning("%r: cannot apply its new ISR: %r", partition, error)

    def _notify(self) -> None:
        self._tree.multi([Create(znodes.ISR_CHANGE, notices.encode_partitions(list(self._unannounced)), sequence=True)])
        self._unannounced.clear()


def _readable(data: bytes, path: str) -> PartitionState | None:
    try:
        return znodes.decode_state(data)
    except MalformedNode as error:
        log.error("%s: %s: ISR not changed", path, error)
        return None


def _leader_and_epoch(row: Row) -> tuple[Any, Any]:
    return row[LEADER], row[EPOCH]
