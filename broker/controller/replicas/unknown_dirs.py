"""Directories that a broker without ZooKeeper has and that its metadata tree knows nothing of, at its start.

Most are of deleted topics: the disk did not let rename them before the broker stopped. Their topics' ids are noted in
the tree below UNRENAMED, in the transaction that deletes the topic, and the deletion is finished here. Kafka on
ZooKeeper does the same: there a topic is in the tree until each broker has renamed its directories.
Of any other nobody knows whether it may go: the tree may have been restored from a backup that is older than the topic.
It stays as it is, is named at each start, and is put aside when a topic of its name is made (partition_dirs: `create`).

Owner     : the controller, before anything is published.
Crash rule: a note goes once no directory of that id is left to rename and the renames are synced, and stays while a
            log directory, or the id of a partition's, cannot be read.
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
    """Retire the directories of topics that were deleted, and name those of no topic. Raises TreeUnavailable."""
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
    """One that the disk does not give may be any: its directory stays, and so do all notes."""
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
            "%d directories are of partitions that %s does not have, and are not served: their topics were deleted, or "
            "are newer than that file. Move them out of log.dirs, or delete them while the broker is stopped: %s",
            len(unknown), FILE_NAME, ", ".join(str(dirs.directory(*key)) for key in sorted(unknown)),
        )  # fmt: skip
