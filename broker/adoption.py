"""Taking over log directories that another broker filled: at the first start only, when the metadata tree is new.

Each `<topic>-<partition>` directory becomes a partition of a topic of that name, with the topic id in its
`partition.metadata` and a leader epoch above the latest in its `leader-epoch-checkpoint`. Topic configs are not on
disk: topics get the broker's defaults, internal topics their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker.partition_dirs import PartitionDirs
from odradek.cluster import planning, topicnames
from odradek.cluster.planning import TopicPlan
from odradek.cluster.state import ClusterState
from odradek.storage.checkpoints import CheckpointError
from odradek.storage.epochs import EpochCache

log = logging.getLogger(__name__)

_IDS_A_MS = 1000  # more producer ids than that nobody gives out


def adopt_topics(state: ClusterState, dirs: PartitionDirs, config: Mapping[str, Any], now_ms: int) -> None:
    """Make topics of the directories that were found."""
    if dirs.found():  # whoever wrote those logs gave out ids too: from 0 on or, if it was one of us, by the clock
        state.skip_producer_ids(now_ms * _IDS_A_MS)
    found: dict[str, list[int]] = {}
    for topic, partition in dirs.found():
        found.setdefault(topic, []).append(partition)
    for topic, partitions in sorted(found.items()):
        if topic == topicnames.KRAFT_METADATA or topicnames.problem(topic):
            continue
        count = max(partitions) + 1
        configs = planning.internal_configs(topic, 1, config)
        replicas = {index: [state.broker] for index in range(count)}
        plan = TopicPlan(topic, replicas, {name: str(value) for name, value in configs.items()})
        state.create_topic(plan, _topic_id(dirs, topic, partitions), _next_epoch(dirs, topic, partitions))
        log.info("took over topic %s with %d partitions from the log directories", topic, count)


def _topic_id(dirs: PartitionDirs, topic: str, partitions: list[int]) -> bytes | None:
    ids = (dirs.topic_id(topic, partition) for partition in sorted(partitions))
    return next((found for found in ids if found is not None), None)


def _next_epoch(dirs: PartitionDirs, topic: str, partitions: list[int]) -> int:
    return 1 + max(_latest_epoch(dirs.directory(topic, partition)) for partition in partitions)


def _latest_epoch(directory: Path) -> int:
    try:
        return EpochCache.read(directory).latest
    except (CheckpointError, OSError):
        return -1
