"""Replicas that are out of order though their broker lives: their log directory has failed (KIP-112).

A broker says that something is wrong by a node under /log_dir_event_notification, and which replicas that concerns
by its answers to LeaderAndIsr: KAFKA_STORAGE_ERROR for each. It is asked about all that it has, then; and whatever it
is told at other times, its answers count too, so that directories that failed before it started are known as well.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from odradek.broker.controller.replicas.controller_requests import Errors
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Delete
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from odradek.broker.controller.elected.elected import Elected

log = logging.getLogger(__name__)


class OfflineReplicas:
    """The elected controller's. Answers are kept until `settle`: they come while others are being told."""

    def __init__(self, elected: Elected) -> None:
        self._elected = elected
        self._answers: list[tuple[int, set[Partition], set[Partition]]] = []

    def look(self) -> None:
        """Ask the brokers that say they have lost a log directory; their notices go. Raises TreeUnavailable."""
        tree = self._elected.tree
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in tree.children(znodes.LOG_DIR_EVENTS, watch=True)]
        found = [notices.decode_log_dir_event(node[0]) for node in tree.get_many(paths) if node is not None]
        for broker in sorted({broker for broker in found if broker is not None}):
            log.info("broker %d lost a log directory or a process: resending LeaderAndIsr", broker)
            self._elected.telling.probe(broker)
        tree.each([[self._elected.fenced.in_office, Delete(path)] for path in paths])

    @property
    def waiting(self) -> bool:
        """Whether there is something to `settle`."""
        return bool(self._answers)

    def heard(self, broker: int, asked: Sequence[Partition], errors: Errors) -> None:
        """What a broker has answered to LeaderAndIsr."""
        failed = {partition for partition, code in errors.items() if code == KAFKA_STORAGE_ERROR}
        if failed or self._answers or self._elected.leadership.offline.get(broker):
            self._answers.append((broker, failed, set(asked) - errors.keys()))

    def forget(self, broker: int) -> None:
        """This life of the broker is over."""
        self._answers = [answer for answer in self._answers if answer[0] != broker]

    def settle(self) -> None:
        """Elect others for what is out of order, and tell everybody. Raises TreeUnavailable."""
        answers, self._answers = self._answers, []
        offline = self._elected.leadership.offline
        before = {broker: set(replicas) for broker, replicas in offline.items()}
        moved: set[Partition] = set()
        for answer in answers:
            moved |= self._take(*answer)
        if moved:
            self._elected.replicas_moved(moved)
        for broker, replicas in before.items():
            if replicas - offline.get(broker, replicas):  # what was decided meanwhile went to the others only
                self._elected.telling.probe(broker)

    def _take(self, broker: int, failed: Collection[Partition], fine: Collection[Partition]) -> set[Partition]:
        """The partitions whose replica there is in another state than before."""
        state = self._elected.leadership
        if broker not in state.live:
            return set()
        before = state.offline.get(broker, set())
        new = state.log_dirs(broker, failed, fine)
        if new:
            log.warning("broker %d: %d replicas offline: their log directory failed", broker, len(new))
        return before ^ state.offline[broker]
