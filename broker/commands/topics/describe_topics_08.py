"""Implements `odradek topics --zookeeper --describe`, in the layout of Kafka 0.8.2's TopicCommand or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from odradek.broker.commands._shared.partitions import ids
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands._shared.zookeeper import live_brokers
from odradek.broker.commands.topics.change_topics import Options
from odradek.broker.commands.topics.change_topics_08 import selected_topics
from odradek.cluster.tree import znodes

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree


def describe(tree: Tree, options: Options) -> None:
    """Print the matching topics, each with the partitions that the reports select."""
    alive = set(live_brokers(tree))
    found = [_described(tree, name, options["reports"], alive) for name in selected_topics(tree, options)]
    if options["topics_with_overrides"]:
        found = [topic | {"partitions": []} for topic in found if topic["configs"]]
    if options["as_json"]:
        print_json(found)
        return
    for topic in found:
        _print(topic, with_header=not options["reports"])


def _described(tree: Tree, name: str, reports: list[str], alive: set[int]) -> dict[str, Any]:
    replicas = znodes.decode_topic(tree.get(znodes.topic_path(name))[0]).replicas
    states = tree.get_many([znodes.state_path(name, index) for index in sorted(replicas)])
    partitions = [
        _partition(index, replicas[index], state and state[0])
        for index, state in zip(sorted(replicas), states, strict=True)
    ]
    return {
        "topic": name,
        "partitionCount": len(partitions),
        "replicationFactor": len(replicas[0]) if partitions else 0,
        "configs": znodes.decode_config(tree.find(f"{znodes.TOPIC_CONFIGS}/{name}")),
        "partitions": [part for part in partitions if not reports or _reported(part, reports, alive)],
    }


def _partition(index: int, replicas: list[int], data: bytes | None) -> dict[str, Any]:
    """A partition's description; without a state no controller has handled the partition yet."""
    state = znodes.decode_state(data) if data else None
    return {
        "partition": index,
        "leader": state.leader if state else None,
        "replicas": replicas,
        "isr": list(state.isr) if state else [],
    }


def _reported(part: dict[str, Any], reports: list[str], alive: set[int]) -> bool:
    facts = {
        "under_replicated_partitions": len(part["isr"]) < len(part["replicas"]),
        "unavailable_partitions": part["leader"] not in alive,
    }
    return any(facts[report] for report in reports)


def _print(topic: dict[str, Any], *, with_header: bool) -> None:
    if with_header:
        configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
        click.echo(
            f"Topic:{topic['topic']}\tPartitionCount:{topic['partitionCount']}"
            f"\tReplicationFactor:{topic['replicationFactor']}\tConfigs:{configs}"
        )
    for part in topic["partitions"]:
        leader = "none" if part["leader"] is None else part["leader"]
        click.echo(
            f"\tTopic: {topic['topic']}\tPartition: {part['partition']}\tLeader: {leader}"
            f"\tReplicas: {ids(part['replicas'])}\tIsr: {ids(part['isr'])}"
        )
