"""Requests that change the metadata, while the connection to ZooKeeper is away: they wait for it, as they do in Kafka.

What waits too long is served all the same, and answered NOT_CONTROLLER, on which clients retry
(broker.controller.member.admin).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, ElectLeaders, IncrementalAlterConfigs,
# AlterPartitionReassignments. Orders of the controller are carried out without ZooKeeper.
CHANGES = frozenset({19, 20, 33, 37, 43, 44, 45})
PATIENCE_S = 15.0  # half of what clients wait by default (request.timeout.ms)
MOST = 1000

Serve = Callable[[], None]


class Outage:
    """What waits; `there` says whether there is a connection."""

    def __init__(self, there: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._there = there
        self._clock = clock
        self._waiting: deque[tuple[float, Serve]] = deque()

    def take(self, api_key: int, serve: Serve) -> None:
        """Call `serve` now, or if it changes what is in ZooKeeper once there is a connection, in order."""
        if api_key in CHANGES and (self._waiting or not self._there()) and len(self._waiting) < MOST:
            self._waiting.append((self._clock() + PATIENCE_S, serve))
        else:
            serve()

    def tick(self) -> None:
        """Serve those that can be, or have waited too long."""
        while self._waiting and (self._there() or self._waiting[0][0] <= self._clock()):
            self._waiting.popleft()[1]()
