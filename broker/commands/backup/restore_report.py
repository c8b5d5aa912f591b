"""Prints what a restore did, or would do: a line for each thing that is not equal, then a table of the kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

from odradek.broker.commands._shared.tables import print_json, rows
from odradek.broker.commands.backup.restore_plans import Item, Outcome

Restored = Iterable[tuple[str, list[Item]]]


def print_report(restored: Restored, *, dry_run: bool, as_json: bool) -> int:
    """Lines come as each kind is done; returns how many things were not restored."""
    counts: dict[str, Counter[Outcome]] = {}
    documents = []
    for kind, items in restored:
        counts[kind] = Counter(item.outcome for item in items)
        for item in items:
            documents.append({"kind": kind, "name": item.name, "outcome": item.outcome.value, "text": item.text})
            if not as_json and item.outcome is not Outcome.EQUAL:
                click.echo(_line(item, dry_run=dry_run))
    if as_json:
        print_json(documents)
    else:
        click.echo("\n".join(_table(counts)))
    return sum(each[Outcome.FAILED] for each in counts.values())


def _line(item: Item, *, dry_run: bool) -> str:
    outcome = item.outcome.value
    if dry_run and item.outcome is not Outcome.DIFFERENT:
        outcome = {Outcome.RESTORED: "would be restored", Outcome.FAILED: "would not be restored"}[item.outcome]
    return f"{item.name}: {outcome}" + (f": {item.text}" if item.text else "")


def _table(counts: dict[str, Counter[Outcome]]) -> list[str]:
    header = ["KIND", *(outcome.value.upper() for outcome in Outcome)]
    table = [[kind, *(each[outcome] for outcome in Outcome)] for kind, each in counts.items()]
    return [line.rstrip() for line in rows(header, [10, 10, 10, 10, 12], table)]
