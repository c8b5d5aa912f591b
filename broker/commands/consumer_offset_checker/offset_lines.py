"""Implements `odradek consumer-offset-checker`; the lines are those of ConsumerOffsetChecker of Kafka 0.8.2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from odradek.broker.commands._shared.client import Cluster, Partition, RequestFailed, explain
from odradek.broker.commands.consumer_groups.describe_groups import committed
from odradek.broker.errors import OdradekError
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import NoNode, Tree
from odradek.protocol.errors import LEADER_NOT_AVAILABLE

_LATEST = -1
_NONE = -1  # the offset of a partition where only others of its topic have one
_LINE = "{:<15} {:<30} {:<3} {:<15} {:<15} {:<15} {}"
_HEADER = ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")


def show(cluster: Cluster, tree: Tree, options: Mapping[str, Any]) -> None:
    """Print a line for each partition, or that the group has no offsets in a topic. RequestFailed."""
    group = options["group"]
    try:
        topics = sorted(_topics(tree, group, options["topic"]))
        partitions = [(topic, index) for topic in topics for index in _indexes(tree, topic)]
        offsets = _offsets(cluster, tree, group, partitions)
    except NoNode as missing:
        reason = "org.apache.zookeeper.KeeperException$NoNodeException: KeeperErrorCode = NoNode for"
        click.echo(f"Exiting due to: {reason} {missing}.")
        return
    except ValueError as error:  # a name that is no path, or a node that a client has damaged
        raise OdradekError(str(error)) from None
    click.echo(_LINE.format(*_HEADER))
    leaders = _show_each(cluster, tree, group, offsets)
    if options["broker_info"]:
        _show_brokers(cluster, leaders)


def _topics(tree: Tree, group: str, given: str | None) -> list[str]:
    """The topics of --topic, or those whose partitions consumers of the group own. NoNode."""
    return given.split(",") if given else tree.children(f"{znodes.CONSUMERS}/{group}/owners")


def _indexes(tree: Tree, topic: str) -> list[int]:
    """The partitions of a topic; none if there is no such topic."""
    data = tree.find(znodes.topic_path(topic))
    return sorted(znodes.decode_topic(data).replicas) if data is not None else []


def _offsets(cluster: Cluster, tree: Tree, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """What the group has committed to Kafka, or else to ZooKeeper. NoNode."""
    in_kafka = committed(cluster, group)
    return {one: in_kafka[one] if one in in_kafka else _in_zookeeper(tree, group, *one) for one in partitions}


def _in_zookeeper(tree: Tree, group: str, topic: str, index: int) -> int:
    path = znodes.consumer_offset_path(group, topic, index)
    data = tree.find(path)
    if data is not None:
        return int(data)
    if tree.exists(path.rpartition("/")[0]) is None:
        raise NoNode(path)
    return _NONE


def _show_each(cluster: Cluster, tree: Tree, group: str, offsets: Mapping[Partition, int]) -> set[int]:
    """Print the lines; returns the brokers that lead the partitions."""
    ends, failed = cluster.offsets(dict.fromkeys(offsets, _LATEST)) if offsets else ({}, {})
    for (topic, index), offset in offsets.items():
        if (topic, index) in ends:
            end, owner = ends[topic, index][0], tree.find(f"{znodes.CONSUMERS}/{group}/owners/{topic}/{index}")
            lag = "unknown" if offset == _NONE else end - offset
            click.echo(_LINE.format(group, topic, index, offset, end, lag, owner.decode() if owner else "none"))
        elif failed[topic, index] == LEADER_NOT_AVAILABLE:
            click.echo(f"No broker for partition {topic} - {index}")
        else:
            code = failed[topic, index]
            raise RequestFailed(code, f"{topic}-{index}: {explain(code)}")
    return set(cluster.leaders(ends)[0]) if ends else set()


def _show_brokers(cluster: Cluster, leaders: Iterable[int]) -> None:
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in cluster.metadata([]).brokers}
    click.echo("BROKER INFO")
    for leader in sorted(leaders):
        click.echo(f"{leader} -> {brokers[leader]}")
