"""What the parts of the elected controller need of the term: the known state, and the ways to change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from odradek.broker.controller.elected.broker_requests import BrokerRequests
from odradek.broker.controller.elected.fenced_writes import FencedWrites
from odradek.cluster.decisions.broker_request_batch import Replica
from odradek.cluster.decisions.controller_state import ControllerContext, StateChange
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.znodes import Partition

Decide = Callable[[], Sequence[StateChange]]


class Term(Protocol):
    """One controller term. Methods raise TreeUnavailable."""

    fenced: FencedWrites
    broker_requests: BrokerRequests

    @property
    def tree(self) -> Tree:
        """The metadata tree."""

    @property
    def context(self) -> ControllerContext:
        """The known state; another object after each start over."""

    def settle(self, decide: Decide, new: bool = False, stop: Mapping[Replica, bool] | None = None) -> int:
        """Write the changes of `decide` and send them, until it returns none; the number of changed partitions.

        If any changed, the replicas of `stop` get StopReplica instead of the change.
        """

    def refused(self, changes: Sequence[StateChange]) -> list[Partition]:
        """Write changes that the caller sends; returns the partitions whose state had changed, read again."""

    def replace_failed(self) -> int:
        """Elect leaders and shrink ISRs where brokers have failed; the number of changed partitions."""

    def attempt(self, action: Callable[[], Any]) -> None:
        """Run an action that follows a response or a lost connection; if ZooKeeper is unavailable, start over later."""
