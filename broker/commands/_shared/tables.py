"""Prints tables with columns as wide as their widest cell, JSON, and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

MISSING = "-"


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def cell(value: Any) -> str:
    """A value as text; None is `-`."""
    return MISSING if value is None else str(value)


def rows(header: Sequence[str], widths: Sequence[int], table: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a table: each column at least `widths` wide, the last one (width 0) without padding."""
    texts = [list(header), *([cell(value) for value in row] for row in table)]
    wide = [max(least, *(len(row[i]) for row in texts)) if least else 0 for i, least in enumerate(widths)]
    return [" ".join(text.ljust(width) for text, width in zip(row, wide, strict=True)) for row in texts]


def progress(text: str) -> None:
    """Overwrite one line on stderr, when that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{text}\x1b[K", err=True, nl=False)


def progress_done() -> None:
    """Clear the progress line."""
    progress("")
