"""Throttles of moves (KIP-73): a topic config names the replicas, a broker config sets the rate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from odradek.broker.commands._shared.client import BROKER, TOPIC, Cluster, Partition, check
from odradek.broker.commands._shared.partitions import ids, plural
from odradek.broker.errors import OdradekError

if TYPE_CHECKING:
    from odradek.broker.commands.reassign_partitions.under_reassignment import Reassignment

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
_RATES = (LEADER_RATE, FOLLOWER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_SET, _DELETE = 0, 1


class Move(NamedTuple):
    """The brokers that a move reads a partition from, and its target brokers."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves(
    under_way: Mapping[Partition, Reassignment],
    proposed: Mapping[Partition, Sequence[int]],
    current: Mapping[Partition, Sequence[int]],
) -> dict[Partition, Move]:
    """The moves under way, and those in `proposed`."""
    found = {
        one: Move(frozenset(move.replicas) - frozenset(move.adding), frozenset(move.adding))
        for one, move in under_way.items()
    }
    for one, brokers in proposed.items():
        sources = found[one].sources if one in found else frozenset(current[one])
        found[one] = Move(sources, frozenset(brokers) - sources)
    return found


def engage(cluster: Cluster, found: Mapping[Partition, Move], rate: int) -> None:
    """Limit the brokers in `found` to sending and receiving at most `rate` bytes per second for these moves."""
    click.echo(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed."
    )
    _alter(cluster, TOPIC, {topic: _replicas(topic, found) for topic in sorted({topic for topic, _ in found})})
    brokers = sorted({broker for move in found.values() for broker in move.sources | move.destinations})
    for broker in brokers:
        _alter(cluster, BROKER, {str(broker): {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}}, broker)
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def _replicas(topic: str, found: Mapping[Partition, Move]) -> dict[str, str | None]:
    """`partition:broker,…` of a topic: the brokers that send moved partitions, and those that receive them."""
    mine = [(index, move) for (name, index), move in found.items() if name == topic]
    leaders = {f"{index}:{broker}" for index, move in mine for broker in move.sources}
    followers = {f"{index}:{broker}" for index, move in mine for broker in move.destinations}
    return {LEADERS: ",".join(sorted(leaders)), FOLLOWERS: ",".join(sorted(followers))}


def clear(cluster: Cluster, reassignments: Iterable[tuple[Partition, list[int]]], live: Collection[int]) -> None:
    """Remove throttles of the partitions' topics, and of all brokers, because any broker may have been a source."""
    reassignments = list(reassignments)
    brokers = sorted({*live, *(broker for _, replicas in reassignments for broker in replicas)})
    topics = sorted({topic for (topic, _), _ in reassignments})
    click.echo(f"Clearing broker-level throttles on broker{plural(brokers)} {ids(brokers)}")
    for broker in live:
        _alter(cluster, BROKER, {str(broker): dict.fromkeys(_RATES)}, broker)
    click.echo(f"Clearing topic-level throttles on topic{plural(topics)} {','.join(topics)}")
    _alter(cluster, TOPIC, {topic: {LEADERS: None, FOLLOWERS: None} for topic in topics})
    if dead := [broker for broker in brokers if broker not in live]:
        raise OdradekError(f"a throttle may remain on broker{plural(dead)} {ids(dead)}: not alive")


def _alter(
    cluster: Cluster, kind: int, changes: Mapping[str, Mapping[str, str | None]], node: int | None = None
) -> None:
    """Set configs of resources; None unsets a config. Raises RequestFailed."""
    make = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        make(
            resource_type=kind,
            resource_name=name,
            configs=[
                make.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                for key, value in configs.items()
            ],
        )
        for name, configs in changes.items()
    ]
    response = cluster.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), node)
    for result in response.responses:
        check(result.error_code, result.error_message)
