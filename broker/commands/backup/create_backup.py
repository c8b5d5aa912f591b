"""Implements `odradek backup create`: reads a cluster, section by section.

A cluster goes on while it is read. Committed offsets are read last but for ACLs, and `created_ms` is the time before
the first request, so a group that was at the end of a log is never set behind what it has not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands.backup import committed_offsets, current_cluster
from odradek.broker.commands.backup.current_cluster import Missing, section
from odradek.broker.commands.backup.saved_cluster import SavedCluster
from odradek.broker.commands.backup.shown_text import shown, shown_broker

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree


def collect(cluster: Cluster, tree: Tree | None) -> SavedCluster:
    """All that a backup has of the cluster. KafkaError when the connection is lost."""
    missing: Missing = []
    created_ms = int(time.time() * 1000)
    found = {
        name: section(title, missing, partial(read, cluster, missing), empty)
        for name, (title, read, empty) in _SECTIONS.items()
    }
    if tree is not None:
        found["users"] = current_cluster.users_in(tree, missing)
    if found["acls"] is None:  # needs Describe of the cluster, as the list of all groups does
        missing.append("groups: perhaps not all, since brokers list only those that the user may describe")
    cluster_id = getattr(cluster.metadata([]), "cluster_id", None) or ""
    return SavedCluster(created_ms, cluster_id, missing=tuple(missing), **found)


def _groups(cluster: Cluster, missing: Missing) -> dict[str, committed_offsets.Positions]:
    return committed_offsets.with_times(cluster, committed_offsets.groups(cluster, missing), missing)


_SECTIONS: dict[str, tuple[str, Callable[[Cluster, Missing], Any], Any]] = {
    "topics": ("topics", current_cluster.topics, {}),
    "brokers": ("configs of brokers", current_cluster.brokers, {}),
    "quotas": ("quotas", current_cluster.quotas, {}),
    "users": ("users", current_cluster.users, {}),
    "groups": ("groups", _groups, {}),
    "acls": ("ACLs", current_cluster.acls, frozenset()),
}


def left_out(saved: SavedCluster) -> list[str]:
    """Lines about what no backup has: it is a secret that brokers do not return."""
    lines = [
        f"{shown_broker(name)}: {key} is a secret that brokers do not return"
        for name, configs in (saved.brokers or {}).items()
        for key, value in configs.items() if value is None
    ]  # fmt: skip
    without = [user for user, held in (saved.users or {}).items() if not all(one.node for one in held.values())]
    return lines + [
        f"user {shown(user)}: the salted password is a secret that brokers do not return" for user in without
    ]


def counts(saved: SavedCluster) -> str:
    """`3 topics, 2 groups, …`, of the sections that were read."""
    sizes = {name: len(found) for name in _SECTIONS if (found := getattr(saved, name)) is not None}
    return ", ".join(f"{name}: {size}" for name, size in sizes.items())
