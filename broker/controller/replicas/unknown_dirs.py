"""Handles directories of a broker without ZooKeeper that its metadata tree does not know, at its start.

Most belong to deleted topics: renaming them failed before the broker stopped. The transaction that deletes such a topic
records its id in the tree below UNRENAMED, and this module finishes the deletion. Kafka on ZooKeeper does the same:
there a topic stays in the tree until each broker has renamed its directories.
Any other directory must be kept: the tree may have been restored from a backup that is older than the topic. It is
logged at each start, and set aside when a topic of its name is created (partition_dirs: `create`).

Owner     : the controller, before anything is published.
Crash rule: a record is deleted once no directory of that id is left to rename and the renames are synced; it stays
            while a log directory, or a partition directory's topic id, cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import FILE_NAME

if TYPE_CHECKING:
    from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
    from odradek.cluster.state import ClusterState

log = logging.getLogger(__name__)

_UNREADABLE = b""


def finish_deletions(state: ClusterState, dirs: PartitionDirs) -> None:
    """Retire the directories of deleted topics, and log those of no topic. Raises TreeUnavailable."""
    unknown = [key for key in dirs.found() if not _is_known(state, *key)]
    deleted = {znodes.uuid_bytes(name): name for name in state.unrenamed()}
    others = []
    for topic, partition in unknown:
        if _topic_id(dirs, topic, partition) in deleted:
            log.info("%s-%d: topic deleted, finishing its deletion", topic, partition)
            dirs.put_away(topic, partition, dirs.retire)
        else:
            others.append((topic, partition))
    _name_others(dirs, others)
    if deleted and not dirs.failed:
        _forget(state, dirs, deleted, {_topic_id(dirs, *key) for key in dirs.found()})


def _forget(
    state: ClusterState, dirs: PartitionDirs, deleted: Mapping[bytes, str], left: Collection[bytes | None]
) -> None:
    if _UNREADABLE not in left and dirs.renames_last():
        state.forget_unrenamed([name for topic_id, name in deleted.items() if topic_id not in left])


def _topic_id(dirs: PartitionDirs, topic: str, partition: int) -> bytes | None:
    """The directory's topic id. An unreadable one may be any: its directory stays, and so do all records."""
    try:
        return dirs.topic_id(topic, partition)
    except OSError as error:
        log.error("%s-%d: cannot read the topic id of its directory: %s", topic, partition, error)
        return _UNREADABLE


def _is_known(state: ClusterState, topic: str, partition: int) -> bool:
    return topic in state.topics and partition < len(state.topics[topic]["partitions"])


def _name_others(dirs: PartitionDirs, unknown: list[tuple[str, int]]) -> None:
    if unknown:
        log.warning(
            "ignoring %d directories of partitions that %s does not have: their topics were deleted, or "
            "are newer than that file. Move them out of log.dirs, or delete them while the broker is stopped: %s",
            len(unknown), FILE_NAME, ", ".join(str(dirs.directory(*key)) for key in sorted(unknown)),
        )  # fmt: skip
