"""The groups' part of the coordinator process: feeds groups.groups and carries out its effects.

Groups keep their state only in `__consumer_offsets`. The coordinator's loop owns one instance and calls it once a turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.broker.coordinator.effects import settle
from odradek.broker.coordinator.internal_topic import InternalTopic
from odradek.broker.coordinator.internal_topic_log import InternalTopicLog
from odradek.broker.process.steps import TaskQueue
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.metadata.view import NO_ID
from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.events import Answer, Append, GroupConfig, Now, Reload
from odradek.groups.groups import Groups
from odradek.groups.loading import GroupReplay
from odradek.groups.log_writer import LogWriter
from odradek.ipc import roles
from odradek.ipc.processes import COLUMN
from odradek.workers.dispatch.catalog import Catalog

BUSY_S = 0.001
SLICE_S = 0.02
COLUMN_APPENDS = COLUMN["appends"]


class GroupCoordinator:
    """The machine, its topic, its writer. `row` holds the counters."""

    def __init__(self, catalog: Catalog, config: Any, controller: ControllerClient, row: memoryview, now: Now) -> None:
        self.machine = Groups(group_config(config))
        self._controller = controller
        self._row = row
        self._log = InternalTopicLog(catalog, roles.COORDINATOR)
        codec = int(config["offsets.topic.compression.codec"])
        self._writer = LogWriter(
            self._log, self.machine.partition_of, self.machine.config.commit_timeout_ms, codec, self.machine.reset
        )  # fmt: skip
        self.topic = InternalTopic(
            self.machine, self._log, self._writer, config["broker.id"], self._create_topic, GroupReplay
        )
        self._expiry_ms: int = config["offsets.retention.check.interval.ms"]
        self._expire_at_ms = now.steady_ms + self._expiry_ms
        self._sweeps = TaskQueue()  # through all groups, perhaps a million offsets: in steps, as clients wait
        self._now = now

    def _create_topic(self) -> None:
        self._controller.create_topic(OFFSETS, lambda why: self.topic.creation_failed(why, self._now))

    def holds_markers(self, partition: int, producer_id: int) -> bool:
        """Whether a partition of `__consumer_offsets` must not take this producer's marker yet: its offsets come first.

        It does not wait for others' offsets, of which some are always in flight: of two commits of one partition the
        later record wins, whichever transaction ends first.
        """
        return self.topic.is_partly_loaded(partition) or self._writer.has_appends_of(producer_id)

    def follow(self, before: Snapshot, snapshot: Snapshot, now: Now) -> None:
        """Take over a new snapshot; sweeps based on the former one end first, since a topic's name may be reused."""
        self._now = now
        self._sweeps.advance(math.inf)
        self.topic.follow(snapshot, now)
        gone = _deleted(before, snapshot)
        if gone:
            self._sweeps.add(self.machine.forgetting(gone, now))

    def poll_timeout(self, now: Now) -> float | None:
        """Seconds until this has work; None: until an event."""
        if self._sweeps.waiting:
            return 0.0
        if self._writer.is_waiting:
            return BUSY_S
        due = self.machine.next_ms()
        return None if due is None else max(0.0, (due - now.steady_ms) / 1000)

    def turn(self, now: Now, deliver: Callable[[Answer], None]) -> None:
        """Handle deadlines, then effects until all that is left waits for others."""
        self._now = now
        self.machine.tick(now)
        if now.steady_ms >= self._expire_at_ms:
            self._expire_at_ms = now.steady_ms + self._expiry_ms
            self._sweeps.add(self.machine.expiring(now))
        self._sweeps.advance(SLICE_S)

        def do(effect: Answer | Append | Reload) -> None:
            if isinstance(effect, Answer):
                deliver(effect)
            elif isinstance(effect, Reload):
                self.topic.reload(effect.key)
            else:
                self._writer.add(effect, now)
                self._row[COLUMN_APPENDS] += 1

        settle(self.machine, do, self._writer, self._log, now)


def group_config(config: Any) -> GroupConfig:
    """The config of groups in a broker's configuration."""
    return GroupConfig(
        min_session_ms=config["group.min.session.timeout.ms"],
        max_session_ms=config["group.max.session.timeout.ms"],
        initial_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        max_metadata=config["offset.metadata.max.bytes"],
        retention_ms=config["offsets.retention.minutes"] * 60_000,
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
    )


def _deleted(before: Snapshot, after: Snapshot) -> set[str]:
    """Topics that are gone, or recreated under the same name."""
    return {
        name
        for name, topic in before.topics.items()
        if name not in after.topics or _is_another(topic.id, after.topics[name].id)
    }


def _is_another(before: bytes, after: bytes) -> bool:
    """Whether both topic ids are known and differ: a topic has no id if a tool has just omitted it."""
    return before != after and NO_ID not in (before, after)
