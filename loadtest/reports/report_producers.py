"""The part of RESULTS.md on tables of producers."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.producers import LOADS, ODRADEK, STEPS

_TOLD = """\
The cost of one partition's idempotent producers under its lock, for which appends wait: growth of the table to that
number, over several tables; the next producer, which evicts the older half; the snapshot that a roll writes; a start
that loads it. Each cell has the CPU ms, the part under the lock, and the longest hold of the lock; none waits for a
disk.
"""
_TITLES = {"grow": "growth to it", "forget": "one more producer", "snapshot": "a roll's snapshot", "start": "a start"}


def producers_section(results: Results) -> str:
    """A table with a line for each number of producers."""
    keys = [key for key in LOADS if key in results.entries]
    if not keys:
        return ""
    head = f"| producers | {' | '.join(_TITLES[step] for step in STEPS)} |\n" + "| --- " * (len(STEPS) + 1) + "|"
    return "\n\n".join(["## Producers", _TOLD.strip(), "\n".join([head, *(_line(results, key) for key in keys)])])


def _line(results: Results, key: str) -> str:
    return f"| {' | '.join([LOADS[key].title, *(_cell(results, key, step) for step in STEPS)])} |"


def _cell(results: Results, key: str, step: str) -> str:
    cpu, held, longest = (results.middle(key, ODRADEK, f"{step}_{what}_ms") for what in ("cpu", "held", "longest"))
    if cpu is None or held is None or longest is None:
        return "–"
    return f"{cpu:,.0f} CPU ms, {held:,.0f} locked, {longest:,.0f} at once"
