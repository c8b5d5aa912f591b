"""The panels of docs/metrics/dashboard.json, with what Prometheus answers to their queries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....harness.prometheus import Prometheus

METRICS = Path(__file__).parents[4] / "docs" / "metrics"
# What Grafana puts in with a scrape each second: four times as long.
_VARIABLES = {"$__rate_interval": "4s", "$instance": ".*"}


@dataclass(frozen=True)
class Series:
    """A line of a panel: its legend, times in seconds since the epoch, values."""

    legend: str
    times: list[float]
    values: list[float]


@dataclass(frozen=True)
class Panel:
    """A panel as Grafana's JSON has it, and its lines."""

    kind: str
    title: str
    unit: str
    at: dict[str, int]
    series: list[Series]


def ask(prometheus: Prometheus, start: float, end: float) -> list[Panel]:
    """Every panel of the dashboard from `start` to `end` (seconds since the epoch), with a point for each second."""
    panels = json.loads((METRICS / "dashboard.json").read_text())["panels"]
    return [_panel(prometheus, panel, start, end) for panel in panels]


def _panel(prometheus: Prometheus, panel: dict[str, Any], start: float, end: float) -> Panel:
    series = [one for target in panel["targets"] for one in _series(prometheus, target, start, end)]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return Panel(panel["type"], panel["title"], unit, panel["gridPos"], series)


def _series(prometheus: Prometheus, target: dict[str, str], start: float, end: float) -> list[Series]:
    query = target["expr"]
    for variable, value in _VARIABLES.items():
        query = query.replace(variable, value)
    found = prometheus.ask("query_range", query=query, start=start, end=end, step=1)["result"]
    return [_line(target["legendFormat"], one) for one in found]


def _line(legend: str, found: dict[str, Any]) -> Series:
    labels = found["metric"]
    name = re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), legend)
    times, values = zip(*found["values"], strict=True)
    return Series(name, list(times), [float(value) for value in values])
