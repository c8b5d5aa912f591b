"""Implements `odradek reassign-partitions --verify`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands._shared.partitions import ids
from odradek.broker.commands.reassign_partitions import throttles
from odradek.broker.commands.reassign_partitions.moves import Replicas, live, moving, replicas, targets


def verify(cluster: Cluster, options: Mapping[str, Any]) -> None:
    """Print the status of each move; remove the throttles when no move is under way."""
    reassignments = targets(options["reassignment_json_file"])
    under_way = moving(cluster)
    current = replicas(cluster, {topic for (topic, _), _ in reassignments})
    click.echo("Status of partition reassignment:")
    for (topic, index), brokers in sorted(dict(reassignments).items()):
        name = f"{topic}-{index}"
        click.echo(_progress(name) if (topic, index) in under_way else _outcome(name, current, (topic, index), brokers))
    click.echo()  # here Kafka prints moves between log directories
    if not under_way and not options["preserve_throttles"]:
        throttles.clear(cluster, reassignments, live(cluster))


def _progress(name: str) -> str:
    return f"Reassignment of partition {name} is still in progress."


def _outcome(name: str, current: Replicas, partition: tuple[str, int], target: list[int]) -> str:
    found = current.get(partition, [])
    if found == target:
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, "
        f"but replica set is {ids(found)} rather than {ids(target)}."
    )
