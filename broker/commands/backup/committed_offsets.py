"""Reads the committed offsets of groups, each with the time of the record that the group would read next.

A backup has the times because a topic that is deleted and filled again has other offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from odradek.broker.commands._shared.client import Cluster, Partition, explain
from odradek.broker.commands.backup.current_cluster import REFUSED, Missing, patiently, pieces
from odradek.broker.commands.backup.saved_cluster import Position
from odradek.broker.commands.backup.shown_text import shown
from odradek.broker.commands.consumer_groups.describe_groups import listed
from odradek.broker.commands.consumer_groups.lag_seconds import timestamps

LATEST = -1
_AT_ONCE = 100  # groups of one request

Positions = dict[Partition, Position]


def groups(cluster: Cluster, missing: Missing) -> dict[str, Positions]:
    """The offsets of all groups that have any, without times. RequestFailed when groups cannot be listed."""
    names = [group.group_id for group in patiently(cluster, lambda: listed(cluster, [], []))]
    found: dict[str, Positions] = {}
    for some in pieces(names, _AT_ONCE):
        found |= _of_groups(cluster, some, missing)
    return {name: positions for name, positions in found.items() if positions}


def _of_groups(cluster: Cluster, names: Sequence[str], missing: Missing) -> dict[str, Positions]:
    """Together, or one by one where one of them is refused."""
    try:
        return committed(cluster, names)
    except REFUSED as error:
        if len(names) > 1:
            return {group: got for name in names for group, got in _of_groups(cluster, [name], missing).items()}
        missing.append(f"offsets of group {shown(names[0])}: {error}")
        return {}


def committed(cluster: Cluster, names: Iterable[str]) -> dict[str, Positions]:
    """The committed offsets of these groups. Raises the error of the first that has one."""
    answer = patiently(cluster, lambda: cluster.admin.list_group_offsets(dict.fromkeys(names)))
    return {
        name: {(tp.topic, tp.partition): Position(one.offset, one.metadata or "") for tp, one in offsets.items()
               if one.offset >= 0}
        for name, offsets in answer.items()
    }  # fmt: skip


def with_times(cluster: Cluster, groups: Mapping[str, Positions], missing: Missing) -> dict[str, Positions]:
    """The same offsets, with what is known of the next records."""
    ends, codes = _ends(cluster, groups)
    failed = {one: explain(code) for one, code in codes.items()}
    found = {name: _timed(cluster, positions, ends, failed) for name, positions in groups.items()}
    missing += sorted({f"times of offsets in topic {shown(topic)}: {why}" for (topic, _), why in failed.items()})
    return found


def _ends(cluster: Cluster, groups: Mapping[str, Positions]) -> tuple[Mapping[Partition, Any], Mapping[Partition, int]]:
    partitions = {one for positions in groups.values() for one in positions}
    return cluster.offsets(dict.fromkeys(partitions, LATEST)) if partitions else ({}, {})


def _timed(
    cluster: Cluster, positions: Positions, ends: Mapping[Partition, Any], failed: dict[Partition, str]
) -> Positions:
    """`failed` gets what cannot be read, by partition."""
    at_end = {one for one, position in positions.items() if one in ends and position.offset >= ends[one][0]}
    found = timestamps(cluster, {one: at.offset for one, at in positions.items() if one in ends and one not in at_end})
    failed |= found.failed
    times = {one: ms for one, ms in found.times.items() if ms >= 0}
    return {one: replace(at, time=times.get(one), at_end=one in at_end) for one, at in positions.items()}
