"""The output of an audit: a table for a terminal, lines of JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from odradek.pipeline.jobs.audit.period import Period, utc
from odradek.pipeline.jobs.audit.verdict import Row


def table(rows: Iterable[Row], tiers: Sequence[str]) -> Iterator[str]:
    """Lines; none if there are no rows."""
    cells = [_cells(row, tiers) for row in rows]
    if not cells:
        return
    cells.insert(0, ["TOPIC", "WINDOW", *(tier.upper() for tier in tiers), ""])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        left = "  ".join(cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True))
        right = "".join(f"  {cell:>{width}}" for cell, width in zip(line[2:-1], widths[2:-1], strict=True))
        yield f"{left}{right}  {line[-1]}".rstrip()


def _cells(row: Row, tiers: Sequence[str]) -> list[str]:
    counts = [f"{row.counts[tier]:,}" if tier in row.counts else "-" for tier in tiers]
    said = [f"{by:,} missing in {tier}" for tier, by in row.missing.items()]
    said += [f"{by:,} too many in {tier}" for tier, by in row.more.items()]
    return [row.topic, utc(row.start), *counts, ", ".join(said)]


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each row."""
    for row in rows:
        yield json.dumps({
            "topic": row.topic, "window": utc(row.start),
            "counts": dict(row.counts), "missing": dict(row.missing), "more": dict(row.more),
            "not judged": list(row.unjudged),
        })  # fmt: skip


def summary(rows: Sequence[Row], period: Period) -> dict[str, object]:
    """How much was compared, and the differences; what was not judged is counted in windows of partitions."""
    judged = [row for row in rows if row.judged]
    return {
        "from": utc(period.begin),
        "to": utc(period.end),
        "topics": len({row.topic for row in judged}),
        "windows": len(judged),
        "records": sum(next(iter(row.counts.values())) for row in judged),
        "missing": sum(max(row.missing.values(), default=0) for row in rows),
        "too many": sum(max(row.more.values(), default=0) for row in rows),
        "not judged": sum(len(row.unjudged) for row in rows),
    }


def sentence(summed: dict[str, object]) -> str:
    """The summary for a terminal."""
    said = (
        "{records:,} records of {topics} topics in {windows} windows from {from} to {to}: "
        "{missing:,} missing, {too many:,} too many"
    ).format(**summed)
    unjudged = summed["not judged"]
    return f"{said}; {unjudged:,} partition windows were not judged" if unjudged else said


def json_line(summed: dict[str, object]) -> str:
    """The summary for a program."""
    return json.dumps({"summary": summed})
