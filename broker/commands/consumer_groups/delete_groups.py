"""Implements `odradek consumer-groups --delete` and `--delete-offsets`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import OffsetDeleteRequest

from odradek.broker.commands._shared.client import Cluster, Partition, check, explain
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands.consumer_groups.describe_groups import Options, chosen
from odradek.broker.commands.consumer_groups.group_tables import print_deleted
from odradek.broker.errors import FAILED, OK


def delete(cluster: Cluster, options: Options) -> int:
    """Delete groups; returns 1 when one was not deleted."""
    codes: dict[str, int] = {}
    for name, node in cluster.coordinators(chosen(cluster, options)).items():
        for result in cluster.send(DeleteGroupsRequest(groups_names=[name]), node).results:
            codes[result.group_id] = result.error_code
    failed = {name: code for name, code in codes.items() if code}
    if options["as_json"]:
        print_json({name: explain(code) if code else None for name, code in codes.items()})
        return FAILED if failed else OK
    deleted = ", ".join(f"'{name}'" for name in codes if name not in failed)
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return OK
    click.echo("Error: Deletion of some consumer groups failed:", err=True)
    for name, code in failed.items():
        click.echo(f"* Group '{name}' could not be deleted due to: {explain(code)}", err=True)
    if deleted:
        click.echo(f"These consumer groups were deleted successfully: {deleted}")
    return FAILED


def partitions_named(cluster: Cluster, arguments: Iterable[str]) -> tuple[list[Partition], dict[str, int]]:
    """Partitions of `topic` and `topic:0,2` arguments, and the error codes of missing topics."""
    found: list[Partition] = []
    whole = []
    for argument in arguments:
        topic, colon, numbers = argument.partition(":")
        if colon:
            found += [(topic, number) for number in _numbers(numbers, argument)]
        else:
            whole.append(topic)
    failed = {}
    for topic in cluster.metadata(whole).topics if whole else ():
        found += [(topic.name, part.partition_index) for part in topic.partitions]
        if topic.error_code:
            failed[topic.name] = topic.error_code
    return sorted(set(found)), failed


def _numbers(text: str, argument: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise click.UsageError(f"'{argument}' is not of the form topic:0,1,2") from None


def delete_offsets(cluster: Cluster, options: Options) -> int:
    """Delete offsets and print a table with a status for each partition; returns 1 when one was not deleted."""
    group = options["group"][0]
    partitions, failed = partitions_named(cluster, options["topic"])
    codes = {(topic, -1): code for topic, code in failed.items()}
    if partitions:
        codes |= _delete(cluster, group, partitions)
    statuses = {one: f"Error: {explain(code)}" if code else "Successful" for one, code in sorted(codes.items())}
    if options["as_json"]:
        print_json([{"topic": t, "partition": p, "status": status} for (t, p), status in statuses.items()])
    else:
        print_deleted(statuses)
    return FAILED if any(codes.values()) else OK


def _delete(cluster: Cluster, group: str, partitions: list[Partition]) -> dict[Partition, int]:
    make = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics: dict[str, list[Any]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(make.OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group, topics=[make(name=name, partitions=parts) for name, parts in topics.items()]
    )
    response = cluster.send(request, cluster.coordinators([group])[group])
    check(response.error_code)
    return {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }
