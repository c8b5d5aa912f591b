"""Prints a client's metrics for `--print-metrics`: `group:name : value`, sorted by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


def print_metrics(metrics: Mapping[str, Mapping[str, Any]] | None) -> None:
    """`metrics` as returned by kafka-python's `metrics()`: {group: {name: value}}."""
    lines = {f"{group}:{name}": value for group, some in (metrics or {}).items() for name, value in some.items()}
    width = max(map(len, lines), default=0)
    click.echo(f"\n{'Metric Name'.ljust(width)} Value")
    for name in sorted(lines):
        value = lines[name]
        click.echo(
            f"{name.ljust(width)} : {value:.3f}" if isinstance(value, float) else f"{name.ljust(width)} : {value}"
        )
