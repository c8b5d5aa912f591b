"""Adopts log directories that another broker filled, as broker.controller.adoption_plan decides, when the metadata tree
is new.

Crash rule: the node ADOPTION is created before the first start is counted, and deleted once everything is adopted. A
start that finds it resumes the adoption: topics in the tree are done, and every step is idempotent.

If a log directory is unusable and the others contain nothing to adopt, the broker starts and keeps ADOPTION for the
logs that the failed directory may hold. ADOPTION is deleted before the broker creates its first own topic: from then on
a directory without a topic may be the rest of a deleted topic, and one with another id may be a topic's current log.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from odradek.broker.config import BrokerConfig
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.errors import BootError
from odradek.cluster.configs import adopted_configs
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import znodes
from odradek.storage.dirs.logdirs import LogDirError

if TYPE_CHECKING:
    from odradek.broker.controller.adoption_plan import AdoptionPlan, TopicAdoption

log = logging.getLogger(__name__)

_IDS_A_MS = 1000  # no broker allocates more producer ids than that


def expect(state: ClusterState) -> None:
    """Mark a new tree: there may be log directories to adopt. Call before the start is counted."""
    if state.tree.exists(znodes.STARTS) is None:
        state.tree.ensure(znodes.ADOPTION)


def adopt_topics(state: ClusterState, dirs: PartitionDirs, config: BrokerConfig, now_ms: int) -> None:
    """Create topics from the directories found, unless that is already done. Raises BootError."""
    if state.tree.exists(znodes.ADOPTION) is None:
        return
    if _are_empty(dirs, config):
        end(state)
        return
    plan = _plan(state, dirs, config)
    _log_plan(plan)
    if plan.topics or plan.strays:
        _refuse_half(dirs)
        state.skip_producer_ids(now_ms * _IDS_A_MS)  # another broker allocated ids too: from 0 on, or by the clock
        _carry_out(plan, state, dirs)
    if not dirs.failed:  # else a failed directory may hold logs to adopt once it is usable
        end(state)


def end(state: ClusterState) -> None:
    """Adopt nothing from now on. Raises TreeUnavailable."""
    if state.tree.exists(znodes.ADOPTION) is not None:
        state.tree.delete(znodes.ADOPTION)


def _are_empty(dirs: PartitionDirs, config: BrokerConfig) -> bool:
    """Whether there is surely nothing to adopt, as in most new brokers: no directory in any log directory."""
    if dirs.failed or config["metadata.log.dir"]:
        return False
    try:
        return not any(entry.is_dir() for folder in dirs.log_dirs for entry in os.scandir(folder))
    except OSError:  # the plan reports it
        return False


def _plan(state: ClusterState, dirs: PartitionDirs, config: BrokerConfig) -> AdoptionPlan:
    """The remaining work: topics in the tree are done."""
    from odradek.broker.controller import adoption_plan  # once in a broker's life

    try:
        plan = adoption_plan.plan(_usable(dirs), state.broker, config)
    except (LogDirError, OSError) as error:
        raise BootError(f"the log directories cannot be taken over: {error}") from None
    plan.topics = [topic for topic in plan.topics if topic.name not in state.topics]
    plan.strays = {(name, index): why for (name, index), why in plan.strays.items() if name not in state.topics}
    return plan


def _usable(dirs: PartitionDirs) -> list[str]:
    return [folder for number, folder in enumerate(dirs.log_dirs) if number not in dirs.failed]


def _refuse_half(dirs: PartitionDirs) -> None:
    """Raise BootError when a log directory is missing: its partitions would start empty."""
    if dirs.failed:
        broken = ", ".join(dirs.log_dirs[number] for number in sorted(dirs.failed))
        raise BootError(
            f"log.dirs: {broken} cannot be used, and the other directories have logs of another broker: taking over "
            "needs all log directories; repair it, or remove it from log.dirs"
        )


def _log_plan(plan: AdoptionPlan) -> None:
    for note in plan.notes:
        log.info("adopting: %s", note)
    for warning in plan.warnings:
        log.warning("adopting: %s", warning)


def _carry_out(plan: AdoptionPlan, state: ClusterState, dirs: PartitionDirs) -> None:
    for (name, partition), (path, reason) in plan.strays.items():
        log.warning("%s not adopted: %s", path, reason)
        dirs.set_aside(name, partition)
    for broker, configs in plan.broker_configs.items():
        state.set_broker_config(broker, configs)
    for topic in plan.topics:
        _create(topic, state)


def _create(topic: TopicAdoption, state: ClusterState) -> None:
    replicas = {index: [state.broker] for index in range(topic.partitions)}
    state.create_topic(TopicPlan(topic.name, replicas, topic.configs), topic.id, topic.epochs)
    log.info("adopted topic %s with %d partitions from the log directories", topic.name, topic.partitions)
    for note in topic.notes:
        log.warning("adopted topic %s: %s", topic.name, note)


def warn_of_unknown(state: ClusterState) -> None:
    """Log the names of the topics whose retention is still unknown."""
    marked = sorted(name for name, topic in state.topics.items() if adopted_configs.is_marked(topic["config"]))
    if marked:
        log.warning(
            "adopted %d topics without their configs: their records are neither deleted nor compacted "
            "(%s; see odradek adopt --help): %s",
            len(marked),
            adopted_configs.MARK,
            ", ".join(marked),
        )
