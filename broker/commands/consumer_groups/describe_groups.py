"""Implements `odradek consumer-groups --list` and `--describe`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from odradek.broker.commands._shared.client import Cluster, Partition, check, explain
from odradek.broker.commands._shared.tables import print_json, rows
from odradek.broker.commands.consumer_groups.group_tables import print_members, print_offsets, print_states
from odradek.broker.commands.consumer_groups.lag_seconds import lag_seconds
from odradek.broker.errors import FAILED, OK
from odradek.protocol.errors import GROUP_ID_NOT_FOUND

Options = Mapping[str, Any]

_DEAD = "Dead"
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True)
class Member:
    """One member of a group."""

    id: str
    instance: str
    client: str
    host: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Group:
    """A group as its coordinator describes it; `state` is Dead for a group that does not exist."""

    name: str
    state: str
    strategy: str
    coordinator: str
    members: tuple[Member, ...]


def listed(cluster: Cluster, states: list[str], types: list[str]) -> list[Any]:
    """Consumer groups of all brokers, sorted by name."""
    found = []
    for broker in cluster.metadata([]).brokers:
        request = ListGroupsRequest(
            states_filter=states,
            types_filter=types,
            min_version=5 if types else 4 if states else 0,
        )
        response = cluster.send(request, broker.node_id)
        check(response.error_code)
        found += [group for group in response.groups if group.protocol_type in ("", "consumer")]
    return sorted(found, key=lambda group: group.group_id)


def show_names(cluster: Cluster, options: Options) -> int:
    """Print group names; with --state or --type, a table."""
    groups = listed(cluster, options["states"], options["type_names"])
    columns = {"GROUP": [group.group_id for group in groups]}
    if options["types"] is not None:
        columns["TYPE"] = [(getattr(group, "group_type", "") or "classic").capitalize() for group in groups]
    if options["state"] is not None:
        columns["STATE"] = [getattr(group, "group_state", "") or "Unknown" for group in groups]
    table = list(zip(*columns.values(), strict=True))
    if options["as_json"]:
        print_json([dict(zip(map(str.lower, columns), row, strict=True)) for row in table])
    elif len(columns) == 1:
        for row in table:
            click.echo(row[0])
    else:
        for line in rows(list(columns), [25] + [20] * (len(columns) - 1), table):
            click.echo(line)
    return OK


def chosen(cluster: Cluster, options: Options) -> list[str]:
    """The groups of --group or --all-groups."""
    if options["all_groups"]:
        return [group.group_id for group in listed(cluster, [], [])]
    return list(dict.fromkeys(options["group"]))


def described(cluster: Cluster, names: Iterable[str]) -> dict[str, Group]:
    """DescribeGroups, with one request to each coordinator."""
    addresses = {b.node_id: f"{b.host}:{b.port}  ({b.node_id})" for b in cluster.metadata([]).brokers}
    by_node: dict[int, list[str]] = {}
    for name, node in cluster.coordinators(names).items():
        by_node.setdefault(node, []).append(name)
    found = {}
    for node, group_names in by_node.items():
        for group in cluster.send(DescribeGroupsRequest(groups=group_names), node).groups:
            found[group.group_id] = _group(group, addresses.get(node, str(node)))
    return dict(sorted(found.items()))


def _group(group: Any, coordinator: str) -> Group:
    absent = group.error_code == GROUP_ID_NOT_FOUND  # from DescribeGroups v6 on (KIP-1043)
    if not absent:
        check(group.error_code, getattr(group, "error_message", None))
    members = tuple(_member(member) for member in group.members)
    state = _DEAD if absent else group.group_state
    return Group(group.group_id, state, group.protocol_data, coordinator, members)


def _member(member: Any) -> Member:
    partitions: list[Partition] = []
    if member.member_assignment:
        assignment = ConsumerProtocolAssignment.decode(member.member_assignment)
        partitions = [(part.topic, i) for part in assignment.assigned_partitions for i in part.partitions]
    return Member(
        id=member.member_id,
        instance=getattr(member, "group_instance_id", None) or "",
        client=member.client_id,
        host=member.client_host,
        partitions=tuple(sorted(partitions)),
    )


def committed(cluster: Cluster, group: str) -> dict[Partition, int]:
    """The offsets that a group has committed."""
    found = cluster.admin.list_group_offsets({group: None})[group]
    return {(tp.topic, tp.partition): data.offset for tp, data in found.items() if data.offset >= 0}


def describe(cluster: Cluster, options: Options) -> int:
    """Print one of three tables for each group; returns 1 when a group does not exist."""
    groups = described(cluster, chosen(cluster, options))
    alive = [group for group in groups.values() if _announce(group, quiet=options["as_json"])]
    if options["members"]:
        documents = [member for group in alive for member in _members(group, verbose=options["verbose"])]
        printer = print_members
    elif options["state"] is not None:
        documents = [_state(group) for group in alive]
        printer = print_states
    else:
        documents = [row for group in alive for row in _offsets(cluster, group, in_seconds=options["lag_seconds"])]
        printer = print_offsets
    if options["as_json"]:
        print_json(documents)
    else:
        printer(documents)
    return OK if len(alive) == len(groups) else FAILED


def _announce(group: Group, *, quiet: bool) -> bool:
    """Print warnings about the group's state to stderr; returns whether the group exists."""
    if group.state == _DEAD:
        click.echo(f"Error: Consumer group '{group.name}' does not exist.", err=True)
    elif group.state == "Empty" and not quiet:
        click.echo(f"\nConsumer group '{group.name}' has no active members.", err=True)
    elif group.state in _REBALANCING and not quiet:
        click.echo(f"\nWarning: Consumer group '{group.name}' is rebalancing.", err=True)
    return group.state != _DEAD


def _state(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "coordinator": group.coordinator,
        "strategy": group.strategy,
        "state": group.state,
        "members": len(group.members),
    }


def _members(group: Group, *, verbose: bool) -> list[dict[str, Any]]:
    return [
        {
            "group": group.name,
            "consumerId": member.id,
            "groupInstanceId": member.instance,
            "host": member.host,
            "clientId": member.client,
            "partitions": len(member.partitions),
            **({"assignment": [list(one) for one in member.partitions]} if verbose else {}),
        }
        for member in group.members
    ]


def _offsets(cluster: Cluster, group: Group, *, in_seconds: bool) -> list[dict[str, Any]]:
    """A row for each partition that is assigned to a member or has an offset; the lag in seconds comes last."""
    offsets = committed(cluster, group.name)
    owners = {
        one: member
        for member in sorted(group.members, key=lambda member: -len(member.partitions))
        for one in member.partitions
    }
    partitions = [*owners, *sorted(set(offsets) - set(owners))]
    ends, failed = cluster.offsets(dict.fromkeys(partitions, -1)) if partitions else ({}, {})
    for (topic, index), code in failed.items():
        click.echo(f"Warning: no log end offset of {topic}-{index}: {explain(code)}", err=True)
    table = [_row(group.name, one, offsets.get(one), ends.get(one), owners.get(one)) for one in partitions]
    if in_seconds:
        seconds = lag_seconds(cluster, offsets, {one: end for one, (end, _) in ends.items()})
        table = [row | {"lagSeconds": seconds.get(one)} for one, row in zip(partitions, table, strict=True)]
    return table


def _row(
    group: str, one: Partition, offset: int | None, end: tuple[int, int] | None, owner: Member | None
) -> dict[str, Any]:
    return {
        "group": group,
        "topic": one[0],
        "partition": one[1],
        "currentOffset": offset,
        "logEndOffset": end[0] if end else None,
        "lag": end[0] - offset if end and offset is not None else None,
        "consumerId": owner.id if owner else None,
        "host": owner.host if owner else None,
        "clientId": owner.client if owner else None,
    }
