"""Partition reassignment: the elected controller carries out the steps of cluster.decisions.reassignment.

A reassignment is stored in the topic's node, so that the next controller continues it. It starts on request, advances
whenever an ISR changes or a broker starts, and ends when all target replicas are in sync.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.controller.elected.term import Term
from odradek.cluster.decisions import reassignment
from odradek.cluster.decisions.broker_request_batch import Replica
from odradek.cluster.decisions.reassignment import Assignment, Step
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import BadVersion, NoNode, Set
from odradek.cluster.tree.znodes import MalformedNode, Partition

log = logging.getLogger(__name__)

_TRIES = 10


class Reassignments:
    """Reassignments in progress. Methods raise TreeUnavailable."""

    def __init__(self, term: Term) -> None:
        self._term = term

    def under_way(self) -> dict[Partition, Assignment]:
        """All reassignments in progress."""
        return reassignment.moving(self._term.context)

    def request(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, ApiError]:
        """Start reassigning partitions to their targets, or cancel (None); returns the refused partitions."""
        refused = {}
        for partition, target in targets.items():
            try:
                planned = reassignment.plan(self._term.context, partition, target)
            except ApiError as error:
                refused[partition] = error
                continue
            log.info("%s-%d: reassignment to %s started", *partition, target if target is not None else "where it was")
            self._begin(partition, planned)
            self.advance([partition])
        return refused

    def _begin(self, partition: Partition, planned: Assignment) -> None:
        """Retry on a changed state; `stop` accumulates, as a retry does not know the replicas dropped before."""
        stop: dict[Replica, bool] = {}
        for _ in range(_TRIES):
            step = reassignment.begin(self._term.context, partition, planned)
            stop |= step.stop
            if self._do(step._replace(stop=stop)):
                return

    def advance(self, partitions: Iterable[Partition]) -> None:
        """Complete the reassignments whose targets are in sync."""
        for partition in partitions:
            for _ in range(_TRIES):
                step = reassignment.finish(self._term.context, partition)
                if step is None or self._do(step):
                    break

    def resume(self) -> None:
        """Continue all: this controller was elected, or brokers have started."""
        for partition in self.under_way():
            step = reassignment.resume(self._term.context, partition)
            if step is not None:
                self._do(step)
                self.advance([partition])

    def _do(self, step: Step) -> bool:
        """Write a step and send it; False if the state had changed and is read again."""
        if step.assignment is not None and not step.completes:
            self._assign(step.partition, step.assignment)
        if step.change is not None and self._term.refused([step.change]):
            return False
        if step.assignment is not None and step.completes:
            self._assign(step.partition, step.assignment)
            log.info("%s-%d: reassignment to %s completed", *step.partition, list(step.assignment.replicas))
        self._term.broker_requests.send_changes([step.partition], step.new, step.stop)
        return True

    def _assign(self, partition: Partition, assignment: Assignment) -> None:
        """Put an assignment into the topic's node, keeping concurrent changes of it."""
        tree, fenced, (topic, index) = self._term.tree, self._term.fenced, partition
        for _ in range(_TRIES):
            try:
                data, stat = tree.get(znodes.topic_path(topic))
                node = assignment.into(znodes.decode_topic(data), index)
                tree.multi([fenced.epoch_check, Set(znodes.topic_path(topic), znodes.encode_topic(node), stat.version)])
            except BadVersion as error:
                fenced.check_refusal(error)
                continue
            except (NoNode, MalformedNode):  # deleted, or malformed by another writer
                return
            self._term.context.put_topic(topic, node)
            return
