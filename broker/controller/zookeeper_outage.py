"""Holds requests that change the metadata until the lost connection to ZooKeeper is back, as Kafka does.

A request that waits too long is served anyway and answered NOT_CONTROLLER, which clients retry
(broker.controller.member.admin).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# CreateTopics, DeleteTopics, CreateAcls, DeleteAcls, AlterConfigs, CreatePartitions, Create-, Renew- and
# ExpireDelegationToken, ElectLeaders, IncrementalAlterConfigs, AlterPartitionReassignments, AlterClientQuotas,
# AlterUserScramCredentials. Requests of controllers need none.
CHANGES = frozenset({19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 49, 51})
TIMEOUT_S = 15.0  # half of what clients wait by default (request.timeout.ms)
MOST = 1000

Serve = Callable[[], None]


class ZooKeeperOutage:
    """The queue of waiting requests; `is_connected` says whether the connection is up."""

    def __init__(self, is_connected: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_connected = is_connected
        self._clock = clock
        self._waiting: deque[tuple[float, Serve]] = deque()

    def submit(self, api_key: int, serve: Serve) -> None:
        """Call `serve` now; if it changes data in ZooKeeper, once the connection is up, in order."""
        if api_key in CHANGES and (self._waiting or not self._is_connected()) and len(self._waiting) < MOST:
            self._waiting.append((self._clock() + TIMEOUT_S, serve))
        else:
            serve()

    def tick(self) -> None:
        """Serve the requests that can be served or have waited too long."""
        while self._waiting and (self._is_connected() or self._waiting[0][0] <= self._clock()):
            self._waiting.popleft()[1]()
