"""Compares a section of a backup with the cluster: what is equal, different, or missing and how it is restored. Pure.

No change deletes or lowers anything. `overwrite` also changes values that differ; what the cluster has in addition to
the backup stays in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from odradek.broker.commands.backup.saved_cluster import (
    ALL_BROKERS,
    Acl,
    Configs,
    Credential,
    Entity,
    Partition,
    Position,
    Topic,
)
from odradek.broker.commands.backup.shown_text import shown, shown_broker


class Outcome(Enum):
    """What becomes of one thing of a backup."""

    RESTORED = "restored"
    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "not restored"


@dataclass(frozen=True)
class NewTopic:
    """Create a topic."""

    name: str
    topic: Topic


@dataclass(frozen=True)
class MorePartitions:
    """Raise the number of partitions of a topic to `count`."""

    name: str
    count: int


@dataclass(frozen=True)
class NewConfig:
    """Set one config of a topic or a broker (`kind`: topics, brokers)."""

    kind: str
    name: str
    key: str
    value: str


@dataclass(frozen=True)
class NewQuota:
    """Set one quota of an entity."""

    entity: Entity
    key: str
    value: float


@dataclass(frozen=True)
class NewCredential:
    """Write a user's credential into the tree."""

    user: str
    mechanism: str
    credential: Credential


@dataclass(frozen=True)
class NewAcl:
    """Create an ACL."""

    acl: Acl


@dataclass(frozen=True)
class NewOffset:
    """Commit an offset for a group without members."""

    group: str
    partition: Partition
    position: Position


Change = NewTopic | MorePartitions | NewConfig | NewQuota | NewCredential | NewAcl | NewOffset


@dataclass(frozen=True)
class Item:
    """One thing of a backup: its name, what becomes of it and why, and the change that restores it."""

    name: str
    outcome: Outcome
    text: str = ""
    change: Change | None = None


def compared(name: str, saved: object, now: object, change: Change | None, *, overwrite: bool) -> Item:
    """The item for a value: missing in the cluster (`now` is None), equal, or different."""
    if now == saved:
        return Item(name, Outcome.EQUAL)
    if now is None or (overwrite and change is not None):
        return Item(name, Outcome.RESTORED, "" if now is None else f"{now} becomes {saved}", change)
    return Item(name, Outcome.DIFFERENT, f"{now} here, {saved} in the backup")


# -- topics


def topics(
    saved: Mapping[str, Topic], now: Mapping[str, Topic], factor: int | None, *, overwrite: bool
) -> Iterator[Item]:
    """Missing topics are created whole; `factor`, if given, is the replication factor instead of the backup's."""
    for name, one in sorted(saved.items()):
        wanted = replace(one, replication_factor=factor or one.replication_factor)
        if name in now:
            items = list(_existing(name, wanted, now[name], overwrite=overwrite))
            yield from items or [Item(f"topic {shown(name)}", Outcome.EQUAL)]
        else:
            yield Item(f"topic {shown(name)}", Outcome.RESTORED, "", NewTopic(name, wanted))


def _existing(name: str, saved: Topic, now: Topic, *, overwrite: bool) -> Iterator[Item]:
    """The differences of a topic that exists. Its replicas are for `odradek reassign-partitions`."""
    title = f"topic {shown(name)}"
    if saved.partitions != now.partitions:
        growth = MorePartitions(name, saved.partitions) if saved.partitions > now.partitions else None
        yield compared(f"{title}, partitions", saved.partitions, now.partitions, growth, overwrite=overwrite)
    if saved.replication_factor != now.replication_factor:
        wanted, here = saved.replication_factor, now.replication_factor
        yield compared(f"{title}, replication factor", wanted, here, None, overwrite=overwrite)
    for key in sorted(saved.configs.keys() | now.configs.keys()):
        value, current = saved.configs.get(key), now.configs.get(key)
        if value != current:
            change = NewConfig("topics", name, key, value) if value is not None else None
            yield compared(f"{title}, {shown(key)}", _unset(value), _unset(current), change, overwrite=overwrite)


def _unset(value: str | None) -> str:
    return "unset" if value is None else shown(value)


# -- brokers


def brokers(saved: Mapping[str, Configs], now: Mapping[str, Configs], *, overwrite: bool) -> Iterator[Item]:
    """Config by config: one that is unset in the cluster is set."""
    for name, configs in sorted(saved.items()):
        title = shown_broker(name)
        for key, value in sorted(configs.items()):
            if name != ALL_BROKERS and name not in now:
                yield Item(f"{title}, {shown(key)}", Outcome.FAILED, "no broker with this id is up")
            else:
                yield _broker(f"{title}, {shown(key)}", (name, key, value), now.get(name, {}), overwrite=overwrite)


def _broker(title: str, saved: tuple[str, str, str | None], now: Configs, *, overwrite: bool) -> Item:
    name, key, value = saved
    if value is not None:
        here = None if now.get(key) is None else shown(str(now[key]))
        return compared(title, shown(value), here, NewConfig("brokers", name, key, value), overwrite=overwrite)
    if key in now:
        return Item(title, Outcome.EQUAL, "set; brokers do not return its value, so it is not compared")
    return Item(title, Outcome.FAILED, "a backup has no secrets: set it with `odradek configs --alter`")


# -- quotas, users, ACLs


def quotas(
    saved: Mapping[Entity, Mapping[str, float]], now: Mapping[Entity, Mapping[str, float]], *, overwrite: bool
) -> Iterator[Item]:
    """Quota by quota."""
    for entity, values in sorted(saved.items(), key=repr):
        who = ", ".join(f"{kind} {'(default)' if name is None else shown(name)}" for kind, name in entity)
        for key, value in sorted(values.items()):
            change = NewQuota(entity, key, value)
            yield compared(f"{who}, {shown(key)}", value, now.get(entity, {}).get(key), change, overwrite=overwrite)


def users(
    saved: Mapping[str, Mapping[str, Credential]],
    now: Mapping[str, Mapping[str, Credential]],
    *,
    from_tree: bool,
    overwrite: bool,
) -> Iterator[Item]:
    """Credential by credential. With `from_tree`, `now` has them whole, and the tree can be written to."""
    for user, held in sorted(saved.items()):
        for mechanism, one in sorted(held.items()):
            title, here = f"user {shown(user)}, {mechanism}", now.get(user, {}).get(mechanism)
            change = NewCredential(user, mechanism, one) if from_tree and one.node else None
            if here is None and change is None:
                yield Item(title, Outcome.FAILED, _hint(one))
            else:
                yield _credential(title, one, here, change, overwrite=overwrite)


def _hint(one: Credential) -> str:
    if one.node:
        return "brokers do not take the credential of a backup: give --zookeeper"
    return "the backup has no password: add it with `odradek users add`"


def _credential(
    title: str, saved: Credential, here: Credential | None, change: Change | None, *, overwrite: bool
) -> Item:
    """Nothing secret is in the text."""
    if here is None:
        return Item(title, Outcome.RESTORED, "", change)
    known = bool(saved.node and here.node)
    if saved.node == here.node if known else saved.iterations == here.iterations:
        return Item(title, Outcome.EQUAL)
    if overwrite and change is not None:
        return Item(title, Outcome.RESTORED, "another credential was there", change)
    return Item(title, Outcome.DIFFERENT, "another password, salt or number of iterations")


def acls(saved: frozenset[Acl], now: frozenset[Acl]) -> Iterator[Item]:
    """ACLs are equal or missing."""
    for one in sorted(saved):
        name = " ".join(("ACL", *map(shown, one)))
        yield Item(name, Outcome.EQUAL) if one in now else Item(name, Outcome.RESTORED, "", NewAcl(one))
