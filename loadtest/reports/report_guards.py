"""The parts of RESULTS.md on what authorizer and quotas cost, and on a client beside others."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements import neighbours
from odradek.loadtest.measurements.guard_rows import NAMES, OPEN, ROWS
from odradek.loadtest.measurements.rows import Row
from odradek.loadtest.reports.report_rows import micros

_GUARDS = """\
Broker CPU of a message in µs, of Odradek alone: without an authorizer; with one, and ACLs of the load's own topics;
with a thousand ACLs of other topics besides; with a quota that the clients do not reach. To reach: 1.02 with 1,002
ACLs.
"""
_NEIGHBOURS = """\
One client sends 2,000 records a second of 200 B, each alone, and measures the time to the acknowledgement, of Odradek
alone. The others run on the broker's two cores. To reach: twice the p99 with 500 TLS connections a second, 1.5 times
with a producer at its quota.
"""


def guards_section(results: Results) -> str:
    """A line for each load."""
    lines = [_line(results, row) for row in ROWS if row.key in results.entries]
    if not lines:
        return ""
    head = f"| work | {' | '.join(NAMES)} |\n{'| --- ' * (len(NAMES) + 1)}|"
    return "\n\n".join(["## Authorizer and quotas", _GUARDS.strip(), "\n".join([head, *lines])])


def _line(results: Results, row: Row) -> str:
    return f"| {' | '.join([row.title, *(_cell(results, row.key, name) for name in NAMES)])} |"


def _cell(results: Results, key: str, name: str) -> str:
    cpu, without = results.middle(key, name, "cpu_us"), results.middle(key, OPEN, "cpu_us")
    if cpu is None or not without:
        return "–"
    return f"{cpu:.2f}" if name == OPEN else f"{cpu:.2f} ({cpu / without:.2f}×)"


def neighbours_section(results: Results) -> str:
    """A line for each neighbour."""
    if neighbours.KEY not in results.entries:
        return ""
    lines = [_beside(results, name) for name in neighbours.NEIGHBOURS]
    head = "| beside | p50 | p99 | p99, of that alone |\n| --- | --- | --- | --- |"
    return "\n\n".join(["## A client beside others", _NEIGHBOURS.strip(), "\n".join([head, *lines])])


def _beside(results: Results, name: str) -> str:
    p50, p99 = (results.middle(neighbours.KEY, name, which) or 0 for which in ("p50", "p99"))
    alone = results.middle(neighbours.KEY, neighbours.ALONE, "p99")
    return f"| {name} | {micros(p50)} | {micros(p99)} | {p99 / alone if alone else 0:.2f}× |"
