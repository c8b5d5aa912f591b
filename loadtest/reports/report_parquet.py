"""The part of RESULTS.md on topics that Spark writes to Parquet."""

from __future__ import annotations

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.parquet import LOADS, PARTITIONS, WAYS, Load

AGAINST = "kafka, on Apache Kafka"
TARGETS = {
    "odradek, files, direct": 2.0,
    "odradek, wire, direct": 1.0,
    "odradek, files": 2.0,
    "odradek, wire": 1.0,
}
_TOLD = (
    "Spark has two cores on the broker's machine; records have the columns of the Kafka source, with snappy. With "
    "`direct`, the reading tasks write the files (`odradek.parquet`); the others are `write.parquet` of a frame. "
    "`odradek, files` reads the leader's segment files, `odradek, wire` fetches from the broker. The last column is "
    f"records/s relative to the connector on Apache Kafka. Topics of {PARTITIONS} partitions."
)


def parquet_section(results: Results) -> str:
    """A table for each measured topic, and the targets under it."""
    parts = [_table(results, key, load) for key, load in LOADS.items() if key in results.entries]
    return "\n\n".join(["## A topic to Parquet", _TOLD, *parts]) if parts else ""


def _table(results: Results, key: str, load: Load) -> str:
    head = f"| {results.entries[key].scale * load.records / 1e6:g} million records of {load.size} B | records/s | MB/s "
    head += "| CPU of Spark's JVM per record | of its Python | of the broker | × |\n"
    lines = [_line(results, key, load, name) for name in WAYS if name in results.entries[key].data]
    verdicts = " ".join(filter(None, (_verdict(results, key, name) for name in TARGETS)))
    return head + "| --- " * 7 + "|\n" + "\n".join(lines) + (f"\n\n{verdicts}" if verdicts else "")


def _line(results: Results, key: str, load: Load, name: str) -> str:
    rate = results.middle(key, name, "rate") or 0
    costs = [results.middle(key, name, f"{whose}_us") or 0 for whose in ("jvm", "python", "broker")]
    share = _share(results, key, name)
    cells = [name, f"{rate / 1000:,.0f} k", f"{rate * load.size / 1e6:,.0f}", *(f"{cost:.2f} µs" for cost in costs)]
    return f"| {' | '.join([*cells, f'{share:.2f}' if share else '–'])} |"


def _share(results: Results, key: str, name: str) -> float | None:
    ours, theirs = (results.middle(key, each, "rate") for each in (name, AGAINST))
    return ours / theirs if ours and theirs else None


def _verdict(results: Results, key: str, name: str) -> str:
    share, target = _share(results, key, name), TARGETS[name]
    return f"{name} ≥ {target:g}×: {'met' if share >= target else 'MISSED'}." if share else ""
