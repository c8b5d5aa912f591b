"""The report of a bench run: medians of the rounds in one table, with everything needed to run it again."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

from odradek.loadtest.brokers import Running
from odradek.loadtest.work import FIRST, LOADS, Cost, Load

# The hot path's promise: at batch 1 with many in flight, this much of Apache Kafka's CPU at most.
GOAL = 1 / 5


@dataclass
class Results:
    """What was measured: `costs[load.key][broker name]` has one entry a round."""

    rounds: int
    scale: float
    costs: dict[str, dict[str, list[Cost]]] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, load: Load, broker: Running, cost: Cost) -> None:
        """Note one run."""
        self.costs.setdefault(load.key, {}).setdefault(broker.name, []).append(cost)

    def fact(self, broker: Running, text: str) -> None:
        """Note a sentence about a broker for the list under the table."""
        self.facts.setdefault(f"{broker.name} {broker.version}", []).append(text)


def ratio(results: Results, key: str) -> float | None:
    """Odradek's broker CPU a message over Apache Kafka's; None when either was not measured."""
    both = results.costs.get(key, {})
    if not {"Odradek", "Apache Kafka"} <= both.keys():
        return None
    return _median_cpu(both["Odradek"]) / _median_cpu(both["Apache Kafka"])


def _median_cpu(costs: Sequence[Cost]) -> float:
    return median(cost.cpu_us for cost in costs)


def line(broker: str, costs: Sequence[Cost]) -> str:
    """One broker's cell: rate and CPU a message; CPU a gigabyte where records are large."""
    rate = median(cost.rate for cost in costs)
    text = f"{_thousands(rate)} msg/s, {_median_cpu(costs):.2f} µs"
    if costs[0].size >= 1000:
        megabytes = rate * costs[0].size / 1e6
        text += f"; {megabytes:,.0f} MB/s, {median(cost.cpu_per_gb for cost in costs):.2f} CPU s/GB"
    return text


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.1f} k" if rate < 100_000 else f"{rate / 1000:,.0f} k"


def table(results: Results) -> str:
    """The Markdown table: a row for each load, a column for each broker, and the CPU of one over the other."""
    names = [name for name in ("Apache Kafka", "Odradek") if any(name in row for row in results.costs.values())]
    rows = [["load", *names, "CPU, Odradek / Kafka"], ["---"] * (len(names) + 2)]
    for load in LOADS:
        if load.key in results.costs:
            rows.append(_row(results, load, names))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(results: Results, load: Load, names: Sequence[str]) -> list[str]:
    costs = results.costs[load.key]
    share = ratio(results, load.key)
    cells = [line(name, costs[name]) if name in costs else "–" for name in names]
    return [load.title, *cells, "–" if share is None else f"{share:.2f}"]


def verdict(results: Results) -> str:
    """One sentence on the hot path's promise."""
    share = ratio(results, FIRST)
    if share is None:
        return "Apache Kafka was not measured in this run, so there is nothing to compare with."
    kept = "kept" if share <= GOAL else "NOT kept"
    text = f"At batch 1 with many in flight Odradek uses {share:.2f} of Kafka's CPU (promise: {GOAL:.2f}): {kept}."
    return text if results.scale == 1 else f"{text} A quick run flatters Odradek: the JVM is hardly warm."


_METHOD = """\
Rates are one kcat process on one partition, sharing the machine's cores with the broker. CPU is that of all the
broker's processes divided by the messages. In each round every load runs on one broker, then on the other."""


def markdown(results: Results) -> str:
    """The whole of RESULTS.md."""
    facts = {name: "; ".join(texts) for name, texts in results.facts.items()} | machine()
    return "\n\n".join(
        (
            "# What a message costs",
            f"Written by `make bench`, {datetime.now(UTC):%Y-%m-%d}: {_extent(results)}.",
            table(results),
            verdict(results),
            _METHOD,
            "\n".join(f"- {name}: {text}" for name, text in facts.items()) + "\n",
        )
    )


def _extent(results: Results) -> str:
    rounds = f"medians of {results.rounds} rounds" if results.rounds > 1 else "one round"
    if results.scale == 1:
        return rounds
    return f"{rounds}, {results.scale:.0%} of each load, so figures are rough and the JVM hardly warm"


def machine() -> dict[str, str]:
    """Versions and hardware."""
    return {
        "client": "kcat and librdkafka "
        + ", ".join(re.findall(r"(?:Version|librdkafka) ([\d.]+)", _first(["kcat", "-V"], "Version"))),
        "Java": _first(["java", "-version"], "version") or "none",
        "Python": platform.python_version(),
        "commit": _first(["git", "rev-parse", "--short", "HEAD"]) or "unknown",
        "machine": f"{os.cpu_count()} cores, {_cpu_model()}, Linux {platform.release()}",
    }


def _first(command: Sequence[str], having: str = "") -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    return next((text.strip() for text in lines if having in text and "http" not in text), "")


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as info:
        return next((text.split(":")[1].strip() for text in info if text.startswith("model name")), platform.machine())
