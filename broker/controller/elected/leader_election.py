"""Elections on request: from an administrator, a broker's controlled shutdown, or a timer."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any

from odradek.broker.controller.elected.term import Term
from odradek.cluster.decisions import admin_requests
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.znodes import Partition

log = logging.getLogger(__name__)

_FIRST_S = 5.0  # as Kafka: leaders scattered by a start do not wait for the interval


class Elections:
    """One controller term. Methods raise TreeUnavailable."""

    def __init__(self, term: Term, config: Any) -> None:
        self._term = term
        self._config = config
        self.due = time.monotonic() + _FIRST_S

    def tick(self, now: float) -> None:
        """auto.leader.rebalance.enable: elect preferred leaders if too many partitions have others."""
        if now < self.due:
            return
        self.due = now + self._config["leader.imbalance.check.interval.seconds"]
        if self._config["auto.leader.rebalance.enable"]:
            self._rebalance()

    def _rebalance(self) -> None:
        most = self._config["leader.imbalance.per.broker.percentage"]
        moves = admin_requests.imbalanced(self._term.context, most)
        if moves:
            log.info("moving the leadership of %d partitions to their preferred replicas", len(moves))
            self.elect(moves, unclean=False)

    def elect(self, partitions: Collection[Partition], unclean: bool) -> dict[Partition, ApiError]:
        """Elect preferred leaders, or any live replica if `unclean`; returns the refused partitions."""
        elections = admin_requests.unclean if unclean else admin_requests.preferred
        refused = elections(self._term.context, partitions).refused
        self._term.settle(lambda: elections(self._term.context, partitions).changes)
        return refused

    def controlled_shutdown(self, broker: int, epoch: int) -> list[Partition]:
        """Move leadership off `broker`, which is about to stop; returns the partitions it still leads. ApiError."""
        state = self._term.context
        admin_requests.check_shutdown(state, broker, epoch)
        state.shutting_down.add(broker)
        self.replace(broker)
        remaining = state.partitions_led_by(broker)
        log.info("broker %d is shutting down: it still leads %d partitions", broker, len(remaining))
        return remaining

    def replace(self, broker: int) -> None:
        """Move leadership off a stopping broker where possible, and remove it from ISRs."""
        state = self._term.context
        stopped = state.controlled_shutdown(broker).stopped
        stop = {(partition, broker): False for partition in stopped}  # instead of the new leader epochs
        changed = self._term.settle(lambda: state.controlled_shutdown(broker).changes, stop=stop)
        # Every broker learns that all its replicas are offline, in sync or not: none may join an ISR now.
        self._term.broker_requests.stop_replicas({} if changed else stop, shown=stopped)
