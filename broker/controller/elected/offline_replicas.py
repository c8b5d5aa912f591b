"""Offline replicas on live brokers, whose log directory has failed (KIP-112).

A broker announces a failure by a node under /log_dir_event_notification. Its LeaderAndIsr response then names the
affected replicas: KAFKA_STORAGE_ERROR for each. The controller resends LeaderAndIsr for all its replicas after the
notice; all other LeaderAndIsr responses count too, so that directories that failed before its start are known as well.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from odradek.broker.controller.elected.term import Term
from odradek.broker.controller.replicas.controller_requests import Errors
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Delete
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import KAFKA_STORAGE_ERROR

log = logging.getLogger(__name__)


class OfflineReplicas:
    """Part of the elected controller. Responses are kept until `settle`: they arrive while requests are being sent."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._responses: list[tuple[int, set[Partition], set[Partition]]] = []

    def check(self) -> None:
        """Probe the brokers that report a failed log directory, and delete their notices. Raises TreeUnavailable."""
        tree = self._term.tree
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in tree.children(znodes.LOG_DIR_EVENTS, watch=True)]
        found = [notices.decode_log_dir_event(node[0]) for node in tree.get_many(paths) if node is not None]
        for broker in sorted({broker for broker in found if broker is not None}):
            log.info("broker %d lost a log directory or a process: resending LeaderAndIsr", broker)
            self._term.broker_requests.probe_log_dirs(broker)
        tree.each([[self._term.fenced.epoch_check, Delete(path)] for path in paths])

    @property
    def waiting(self) -> bool:
        """Whether there is something to `settle`."""
        return bool(self._responses)

    def record_response(self, broker: int, asked: Sequence[Partition], errors: Errors) -> None:
        """Keep a broker's response to LeaderAndIsr."""
        failed = {partition for partition, code in errors.items() if code == KAFKA_STORAGE_ERROR}
        if failed or self._responses or self._term.context.offline.get(broker):
            self._responses.append((broker, failed, set(asked) - errors.keys()))

    def forget(self, broker: int) -> None:
        """Drop responses of a broker whose registration ended."""
        self._responses = [answer for answer in self._responses if answer[0] != broker]

    def settle(self) -> None:
        """Elect leaders in place of offline replicas, and inform every broker. Raises TreeUnavailable."""
        answers, self._responses = self._responses, []
        offline = self._term.context.offline
        before = {broker: set(replicas) for broker, replicas in offline.items()}
        moved: set[Partition] = set()
        for answer in answers:
            moved |= self._apply(*answer)
        if moved:
            self._term.replace_failed()
            self._term.broker_requests.send_metadata(list(moved))
        for broker, replicas in before.items():
            if replicas - offline.get(broker, replicas):  # decisions made meanwhile went only to other brokers
                self._term.broker_requests.probe_log_dirs(broker)

    def _apply(self, broker: int, failed: Collection[Partition], fine: Collection[Partition]) -> set[Partition]:
        """The partitions whose replica on `broker` has changed state."""
        state = self._term.context
        if broker not in state.live:
            return set()
        before = state.offline.get(broker, set())
        new = state.log_dirs(broker, failed, fine)
        if new:
            log.warning("broker %d: %d replicas offline: their log directory failed", broker, len(new))
        return before ^ state.offline[broker]
