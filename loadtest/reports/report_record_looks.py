"""The part of RESULTS.md on the cost of checking records."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.record_looks import LOADS, LOOKED_AT, TRUSTED
from odradek.loadtest.measurements.rows import ROWS

_TITLES = {row.key: row.title for row in ROWS}
_CONTINUED = {"full-lz4": "1 KB, full batches, lz4"}
_TOLD = """\
A leader validates the records of each batch before it stores them, unless the topic has `odradek.producers.trusted`.
The same load goes in turn to a topic with default settings and to one that trusts its producers, on one broker. CPU is
that of the broker per message.
"""


def record_looks_section(results: Results) -> str:
    """A table with a line for each measured load."""
    keys = [key for key in LOADS if key in results.entries]
    if not keys:
        return ""
    head = "| work | trusted | validated | more CPU | to reach | |\n" + "| --- " * 6 + "|"
    lines = [_line(results, key) for key in keys]
    return "\n\n".join(["## Validation of records", _TOLD.strip(), "\n".join([head, *lines])])


def _line(results: Results, key: str) -> str:
    row, most = LOADS[key]
    without, looked = (results.middle(key, name, "cpu_us") or 0 for name in (TRUSTED, LOOKED_AT))
    more = looked / without - 1 if without else 0
    word = "met" if looked <= without * (1 + most) else "MISSED"
    title = _CONTINUED.get(row, _TITLES[row])
    return f"| {title} | {without:.2f} µs | {looked:.2f} µs | {more:+.0%} | ≤ {most:+.0%} | {word} |"
