"""The table of RESULTS.md: the rows' figures, Odradek next to the others, and whether each target is met."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.loadtest.harness.store import Results
from odradek.loadtest.measurements.rows import ROWS, Row, Target

NAMES = ("Apache Kafka", "RabbitMQ", "Odradek")


def ratio(results: Results, key: str, name: str) -> float | None:
    """Odradek's median of `name` over Apache Kafka's; None when either was not measured."""
    ours, theirs = results.middle(key, "Odradek", name), results.middle(key, "Apache Kafka", name)
    return ours / theirs if ours is not None and theirs else None


def thousands(rate: float) -> str:
    """A rate for readers."""
    if rate < 1000:
        return f"{rate:,.0f}"
    return f"{rate / 1000:,.1f} k" if rate < 100_000 else f"{rate / 1000:,.0f} k"


def micros(value: float) -> str:
    """A latency in µs for readers."""
    return f"{value:,.0f} µs" if value < 1000 else f"{value / 1000:,.1f} ms"


def cell(results: Results, row: Row, broker: str) -> str:
    """One broker's figures in one row."""
    rate, cpu = results.middle(row.key, broker, "rate"), results.middle(row.key, broker, "cpu_us")
    if rate is None or cpu is None:
        return "–"
    if row.latency:
        shown = " / ".join(micros(results.middle(row.key, broker, name) or 0) for name in ("p50", "p99", "p999"))
        return f"{shown}; {cpu:.1f} µs"
    text = f"{thousands(rate)} msg/s, {cpu:.2f} µs"
    if row.kafka.size >= 1000:
        gigabytes = results.middle(row.key, broker, "cpu_per_gb") or 0
        text += f"; {rate * row.kafka.size / 1e6:,.0f} MB/s, {gigabytes:.2f} CPU s/GB"
    return text


def wanted(target: Target) -> list[str]:
    """The targets of a row, in words."""
    parts = [(target.rate, f"≥ {target.rate:g}× msg/s"), (target.cpu, f"≤ {target.cpu:.2g}× CPU")]
    parts += [(target.p50, f"≤ {target.p50:g}× p50"), (target.p99, f"≤ {target.p99:g}× p99")]
    parts += [(target.floor, f"≥ {thousands(target.floor)} msg/s")]
    return [text for value, text in parts if value]


def missed(results: Results, row: Row) -> list[str] | None:
    """The names of the targets that `row` misses; None when that is unknown."""
    target = row.target
    names = ["rate", "cpu_us"]
    if row.latency:
        names += ["p50", "p99"] if target.p50 else ["p99"]
    shares = {name: ratio(results, row.key, name) for name in names}
    rate = results.middle(row.key, "Odradek", "rate")
    if rate is None or None in shares.values():
        return None
    held = {
        "msg/s": (shares["rate"] or 0) >= target.rate and rate >= target.floor,
        "CPU": not target.cpu or (shares["cpu_us"] or 0) <= target.cpu,
        "p50": not target.p50 or (shares.get("p50") or 0) <= target.p50,
        "p99": not target.p99 or (shares.get("p99") or 0) <= target.p99,
    }
    return [name for name, good in held.items() if not good]


def verdict(results: Results, row: Row) -> str:
    """met, or the missed targets."""
    lacks = missed(results, row)
    if lacks is None or not wanted(row.target):
        return "–"
    return "met" if not lacks else f"MISSED: {', '.join(lacks)}"


def _reached(results: Results, row: Row) -> str:
    first = [("p50", "p50"), ("p99", "p99")] if row.latency else [("rate", "msg/s")]
    shares = [(ratio(results, row.key, name), label) for name, label in (*first, ("cpu_us", "CPU"))]
    return ", ".join(f"{share:.2f}× {label}" for share, label in shares if share is not None) or "–"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(results: Results, rows: Sequence[Row] = ROWS, names: Sequence[str] = NAMES) -> str:
    """The Markdown table of all measured rows."""
    head = ["work", *names, "Odradek / Kafka", "to reach", ""]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        if row.key in results.entries:
            cells = [cell(results, row, name) for name in names]
            last = [_reached(results, row), ", ".join(wanted(row.target)) or "–", verdict(results, row)]
            lines.append(_line([row.title, *cells, *last]))
    return "\n".join(lines)


def summary(results: Results, rows: Sequence[Row] = ROWS) -> str:
    """One line: how many rows meet their targets, and which do not."""
    told = {row.key: verdict(results, row) for row in rows if row.key in results.entries}
    met = sum(word == "met" for word in told.values())
    bad = [f"{key} ({word.removeprefix('MISSED: ')})" for key, word in told.items() if word.startswith("MISSED")]
    return f"{met} rows met, {len(bad)} missed" + (f": {'; '.join(bad)}." if bad else ".")
