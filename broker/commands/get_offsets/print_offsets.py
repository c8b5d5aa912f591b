"""Implements `odradek get-offsets`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from odradek.broker.commands._shared.client import Cluster, Partition, explain
from odradek.broker.commands._shared.filters import PartitionFilter
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.errors import FAILED, OK, OdradekError


def run(
    bootstrap: str,
    config: Mapping[str, str],
    partition_filter: PartitionFilter,
    timestamp: int,
    *,
    exclude_internal: bool,
    as_json: bool,
) -> int:
    """Print the offsets of all partitions that `partition_filter` accepts; returns 1 when some failed."""
    with Cluster(bootstrap, config) as cluster:
        partitions = _partitions(cluster, partition_filter, exclude_internal)
        if not partitions:
            raise OdradekError("no partition matches")
        found, failed = cluster.offsets(dict.fromkeys(partitions, timestamp))
    for one, code in sorted(failed.items()):
        click.echo(f"Skip getting offsets for {one[0]}-{one[1]}: {explain(code)}", err=True)
    _print({one: offset for one, (offset, _) in sorted(found.items()) if offset != -1}, as_json)
    return FAILED if failed else OK


def _partitions(cluster: Cluster, partition_filter: PartitionFilter, exclude_internal: bool) -> list[Partition]:
    return [
        (topic.name, part.partition_index)
        for topic in cluster.metadata().topics
        if not (exclude_internal and topic.is_internal)
        for part in topic.partitions
        if partition_filter(topic.name, part.partition_index)
    ]


def _print(offsets: Mapping[Partition, int], as_json: bool) -> None:
    if as_json:
        print_json([{"topic": t, "partition": p, "offset": offset} for (t, p), offset in offsets.items()])
        return
    for (topic, partition), offset in offsets.items():
        click.echo(f"{topic}:{partition}:{offset}")
