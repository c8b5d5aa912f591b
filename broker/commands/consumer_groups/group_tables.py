"""The tables of `odradek consumer-groups`, with the columns and widths of Kafka's ConsumerGroupCommand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from odradek.broker.commands._shared.tables import rows

Document = Mapping[str, Any]


def print_offsets(documents: Sequence[Document]) -> None:
    """One table for each group; LAG-SECONDS, which Kafka does not have, comes last so that its columns stay."""
    columns = {
        "GROUP": 15, "TOPIC": 15, "PARTITION": 10, "CURRENT-OFFSET": 15, "LOG-END-OFFSET": 15, "LAG": 15,
        "CONSUMER-ID": 15, "HOST": 15, "CLIENT-ID": 0,
    }  # fmt: skip
    if documents and "lagSeconds" in documents[0]:
        columns |= {"CLIENT-ID": 15, "LAG-SECONDS": 0}
    for part in _by_group(documents):
        _print(list(columns), list(columns.values()), [list(row.values()) for row in part])


def print_states(documents: Sequence[Document]) -> None:
    """One table for each group."""
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    for part in _by_group(documents):
        _print(header, [25, 25, 20, 15, 0], [list(row.values()) for row in part])


def print_members(documents: Sequence[Document]) -> None:
    """One table for each group; columns for instance ids and assignments only where there are any."""
    for part in _by_group(documents):
        columns = {"GROUP": 15, "CONSUMER-ID": 15}
        if any(row["groupInstanceId"] for row in part):
            columns["GROUP-INSTANCE-ID"] = 17
        columns |= {"HOST": 15, "CLIENT-ID": 15, "#PARTITIONS": 15}
        if "assignment" in part[0]:
            columns["ASSIGNMENT"] = 0
        _print(list(columns), list(columns.values()), [_member(row, columns) for row in part])


def _member(row: Document, columns: Mapping[str, int]) -> list[Any]:
    cells = {
        "GROUP": row["group"],
        "CONSUMER-ID": row["consumerId"],
        "GROUP-INSTANCE-ID": row["groupInstanceId"],
        "HOST": row["host"],
        "CLIENT-ID": row["clientId"],
        "#PARTITIONS": row["partitions"],
        "ASSIGNMENT": _assignment(row.get("assignment", [])),
    }
    return [cells[name] for name in columns]


def _assignment(partitions: Iterable[Sequence[Any]]) -> str | None:
    """`clicks(0,1), views(0)`."""
    topics = [
        f"{topic}({','.join(str(index) for _, index in some)})"
        for topic, some in groupby(partitions, key=lambda one: one[0])
    ]
    return ", ".join(topics) or None


def print_new_offsets(offsets: Mapping[tuple[str, str, int], int]) -> None:
    """Print the offsets that `--reset-offsets` sets or would set."""
    table = [[*place, offset] for place, offset in offsets.items()]
    _print(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [30, 30, 10, 15], table)


def print_deleted(statuses: Mapping[tuple[str, int], str]) -> None:
    """Print the results of `--delete-offsets`."""
    table = [[topic, index if index >= 0 else "Not Provided", status] for (topic, index), status in statuses.items()]
    _print(["TOPIC", "PARTITION", "STATUS"], [30, 15, 15], table)


def _by_group(documents: Sequence[Document]) -> list[list[Document]]:
    return [list(part) for _, part in groupby(documents, key=lambda row: row["group"])]


def _print(header: Sequence[str], widths: Sequence[int], table: Sequence[Sequence[Any]]) -> None:
    click.echo()
    for line in rows(header, widths, table):
        click.echo(line)
