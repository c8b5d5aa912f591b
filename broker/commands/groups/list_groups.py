"""Implements `odradek groups --list`; the table is that of Kafka's GroupsCommand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from kafka.protocol.admin import ListGroupsRequest

from odradek.broker.commands._shared.client import Cluster, check

_WIDTH = 20  # of each column, unless a cell is wider
Row = tuple[str, str, str]  # group, type, protocol


def show(cluster: Cluster, options: Mapping[str, Any]) -> None:
    """Print the groups that the options select."""
    table = [row for row in sorted(_groups(cluster)) if _selected(row, options)]
    width = max([_WIDTH, *(len(cell) for row in table for cell in row)])
    click.echo(" ".join(cell.ljust(width) for cell in ("GROUP", "TYPE", "PROTOCOL")))
    for row in table:
        click.echo("".join(f"{cell.ljust(width)} " for cell in row))  # Kafka ends these lines, but not the first, so


def _groups(cluster: Cluster) -> Iterator[Row]:
    for broker in cluster.metadata([]).brokers:
        response = cluster.send(ListGroupsRequest(states_filter=[], types_filter=[]), broker.node_id)
        check(response.error_code)
        for group in response.groups:
            kind = getattr(group, "group_type", "") or "classic"
            yield group.group_id, kind.capitalize(), group.protocol_type


def _selected(row: Row, options: Mapping[str, Any]) -> bool:
    kind, protocol = row[1].lower(), row[2]
    if options["consumer"]:
        return kind == "consumer" or (kind == "classic" and protocol in ("", "consumer"))
    if options["share"] or options["streams"]:
        return kind == ("share" if options["share"] else "streams")
    return options["group_type"] in (None, kind) and options["protocol"] in (None, protocol)
