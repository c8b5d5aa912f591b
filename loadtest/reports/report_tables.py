"""The part of RESULTS.md on topics that become Arrow record batches."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.tables import FILES, LOADS, PARTITIONS, WAYS, WIRE, Load

TARGETS = {FILES: 2000, WIRE: 1000}  # MB/s
_TOLD = (
    "One program reads the topic into record batches of Arrow, on the broker's machine: `odradek.arrow` from the "
    "leader's files and over the wire, and confluent-kafka's consumer, whose records become batches by way of lists of "
    f"Python. CPU is that of the program and of the broker. Topics of {PARTITIONS} partitions."
)


def tables_section(results: Results) -> str:
    """A table for each measured topic, and the targets under it."""
    parts = [_table(results, key, load) for key, load in LOADS.items() if key in results.entries]
    return "\n\n".join(["## A topic to Arrow", _TOLD, *parts]) if parts else ""


def _table(results: Results, key: str, load: Load) -> str:
    head = f"| {results.entries[key].scale * load.records / 1e6:g} million records of {load.size} B | records/s | MB/s "
    head += "| CPU of the program per record | of the broker |\n"
    lines = [_line(results, key, load, way) for way in WAYS if way in results.entries[key].data]
    verdicts = " ".join(_verdict(results, key, load, way) for way in TARGETS)
    return f"{head}{'| --- ' * 5}|\n" + "\n".join(lines) + f"\n\n{verdicts}"


def _line(results: Results, key: str, load: Load, way: str) -> str:
    rate = results.middle(key, way, "rate") or 0
    records = results.entries[key].scale * load.records
    costs = [(results.middle(key, way, whose) or 0) / records * 1e6 for whose in ("client_cpu", "broker_cpu")]
    cells = [way, f"{rate / 1000:,.0f} k", f"{rate * load.size / 1e6:,.0f}", *(f"{cost:.2f} µs" for cost in costs)]
    return f"| {' | '.join(cells)} |"


def _verdict(results: Results, key: str, load: Load, way: str) -> str:
    reached = (results.middle(key, way, "rate") or 0) * load.size / 1e6
    return f"{way} ≥ {TARGETS[way]:,} MB/s: {'met' if reached >= TARGETS[way] else 'MISSED'}."
