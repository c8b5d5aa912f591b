"""Implements `odradek backup restore`: kind by kind it compares the backup with the cluster, then sends the changes.

ACLs come last: the first one can take the rights for the rest away. Each run reads the cluster first, so a restore
that was interrupted is started again, and one that is complete changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands.backup import current_cluster, plan_offsets, restore_plans
from odradek.broker.commands.backup.carry_out import carry_out
from odradek.broker.commands.backup.committed_offsets import LATEST, Positions, committed
from odradek.broker.commands.backup.current_cluster import REFUSED
from odradek.broker.commands.backup.plan_offsets import Log
from odradek.broker.commands.backup.restore_options import KINDS, RestoreOptions
from odradek.broker.commands.backup.restore_plans import Item, Outcome
from odradek.broker.commands.backup.saved_cluster import Partition, SavedCluster, Topic
from odradek.broker.commands.backup.shown_text import shown
from odradek.broker.commands.consumer_groups.describe_groups import described, listed

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree

_EARLIEST = -2

T = TypeVar("T")
_WITHOUT_MEMBERS = ("Empty", "Dead")


class Restore:
    """One restore: a cluster, its tree if it is given, and a backup."""

    def __init__(self, cluster: Cluster, tree: Tree | None, saved: SavedCluster, options: RestoreOptions) -> None:
        self._cluster, self._tree, self._saved, self._options = cluster, tree, saved, options

    def run(self) -> Iterator[tuple[str, list[Item]]]:
        """Each chosen kind with its items, once it is restored, or compared with `dry_run`."""
        for kind in KINDS:
            if kind in self._options.only:
                yield kind, self._restored(kind)

    def _restored(self, kind: str) -> list[Item]:
        saved = getattr(self._saved, kind)
        if saved is None:
            return [Item(kind, Outcome.FAILED, "they could not be read for this backup: see its `missing`")]
        try:
            items = list(_PLANS[kind](self, saved)) if saved else []  # the brokers may not have the API
        except REFUSED as error:
            return [Item(kind, Outcome.FAILED, str(error))]
        return items if self._options.dry_run else carry_out(self._cluster, self._tree, items)

    def _topics(self, saved: Any) -> Iterator[Item]:
        now = yield from self._now(current_cluster.topics)
        yield from restore_plans.topics(saved, now, self._options.factor, overwrite=self._options.overwrite)

    def _brokers(self, saved: Any) -> Iterator[Item]:
        now = yield from self._now(current_cluster.brokers)
        yield from restore_plans.brokers(saved, now, overwrite=self._options.overwrite)

    def _quotas(self, saved: Any) -> Iterator[Item]:
        now = yield from self._now(current_cluster.quotas)
        yield from restore_plans.quotas(saved, now, overwrite=self._options.overwrite)

    def _users(self, saved: Any) -> Iterator[Item]:
        tree = self._tree
        now = yield from self._now(
            current_cluster.users if tree is None else lambda _, missing: current_cluster.users_in(tree, missing)
        )
        yield from restore_plans.users(saved, now, from_tree=tree is not None, overwrite=self._options.overwrite)

    def _acls(self, saved: Any) -> Iterator[Item]:
        now = yield from self._now(current_cluster.acls)
        yield from restore_plans.acls(saved, now)

    def _now(self, read: Callable[[Cluster, list[str]], T]) -> Generator[Item, None, T]:
        """What the cluster has; yields an item for each thing that cannot be read."""
        missing: list[str] = []
        now = read(self._cluster, missing)
        for line in missing:
            name, _, why = line.partition(": ")
            yield Item(name, Outcome.FAILED, why)
        return now

    def _groups(self, saved: Mapping[str, Positions]) -> Iterator[Item]:
        logs = self._logs({one for positions in saved.values() for one in positions})
        states = {one.group_id: getattr(one, "group_state", "") for one in listed(self._cluster, [], [])}
        for group, positions in sorted(saved.items()):
            try:
                yield from self._group(group, positions, logs, states.get(group, "Dead"))
            except REFUSED as error:
                yield Item(f"group {shown(group)}", Outcome.FAILED, str(error))

    def _group(self, group: str, saved: Positions, logs: Mapping[Partition, Log], state: str) -> Iterator[Item]:
        """`state` is empty where ListGroups has none (before Kafka 2.6)."""
        state = state or described(self._cluster, [group])[group].state
        now = committed(self._cluster, [group])[group]
        items = list(self._offsets(group, saved, now, logs))
        if state in _WITHOUT_MEMBERS or all(item.outcome is Outcome.EQUAL for item in items):
            yield from items
        else:
            text = f"it has members ({state}): stop them first; none of its offsets changed"
            yield Item(f"group {shown(group)}", Outcome.FAILED, text)

    def _offsets(self, group: str, saved: Positions, now: Positions, logs: Mapping[Partition, Log]) -> Iterator[Item]:
        recreated, created_ms = self._options.recreated, self._saved.created_ms
        times = {one: plan_offsets.needed_time(at, logs.get(one), recreated, created_ms) for one, at in saved.items()}
        wanted = {one: ms for one, ms in times.items() if ms is not None}
        found, _ = self._cluster.offsets(wanted) if wanted else ({}, {})
        for one, position in sorted(saved.items()):
            offset = found[one][0] if one in found else None
            yield plan_offsets.item(
                group, one, position, now.get(one), logs.get(one), recreated, offset, overwrite=self._options.overwrite
            )

    def _logs(self, partitions: Collection[Partition]) -> dict[Partition, Log]:
        """The logs of these partitions that exist and can be read."""
        topics = {topic.name: topic for topic in self._cluster.metadata().topics}
        same = {name for name in topics if _same(topics[name], (self._saved.topics or {}).get(name))}
        here = {(name, part.partition_index) for name, topic in topics.items() for part in topic.partitions}
        wanted = [one for one in partitions if one in here]
        if not wanted:
            return {}
        starts, ends = (self._cluster.offsets(dict.fromkeys(wanted, at))[0] for at in (_EARLIEST, LATEST))
        return {one: Log(starts[one][0], ends[one][0], one[0] in same) for one in starts if one in ends}


_PLANS: dict[str, Callable[[Restore, Any], Iterator[Item]]] = {
    "topics": Restore._topics,
    "brokers": Restore._brokers,
    "quotas": Restore._quotas,
    "users": Restore._users,
    "groups": Restore._groups,
    "acls": Restore._acls,
}


def _same(now: Any, saved: Topic | None) -> bool:
    """Whether the topic is that of the backup, by its id; brokers before Kafka 2.8 have none."""
    made = getattr(now, "topic_id", None)
    return saved is not None and bool(saved.id) and made is not None and made.hex == saved.id
