"""The alert rules and the dashboard: their queries parse, their metrics exist, each alert has a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.cli import odradek

from .conftest import Metered
from .scraping import get

DOCS = Path(__file__).parents[3] / "docs"
_VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DOCS / "metrics" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((DOCS / "metrics" / "dashboard.json").read_text())["panels"]
    return panels


def _queries() -> list[str]:
    shown = [target["expr"] for panel in _panels() for target in panel["targets"]]
    for variable, value in _VARIABLES.items():
        shown = [query.replace(variable, value) for query in shown]
    return [*shown, *(rule["expr"] for rule in _rules())]


def _metrics(query: str) -> set[str]:
    """The metric names in a query; fails if the query does not parse."""
    return set(_selected(promql_parser.parse(query)))


def _selected(node: Any) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name
        yield node.name
    for part in ("lhs", "rhs", "expr", "vector_selector"):
        if hasattr(node, part):
            yield from _selected(getattr(node, part))
    for argument in getattr(node, "args", None) or []:
        yield from _selected(argument)


def test_selectors_are_found() -> None:
    query = 'histogram_quantile(0.9, sum by (le) (rate(a_bucket{x="y"}[5m]))) > 2 * b - max(c) or topk(3, (d))'
    assert _metrics(query) == {"a_bucket", "b", "c", "d"}


@pytest.mark.live
def test_every_metric_exists(metered: Metered) -> None:
    _, address = metered()
    families = list(text_string_to_metric_families(get(address, "/metrics").decode()))
    known = {"up"} | {one.name for one in families} | {f"{one.name}_total" for one in families if one.type == "counter"}
    known |= {f"{one.name}_{end}" for one in families if one.type == "histogram" for end in ("bucket", "count", "sum")}
    lines = get(address, "/metrics").decode().splitlines()
    known |= {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    asked = {name for query in _queries() for name in _metrics(query)}
    assert len(asked) > 20 and asked - known == {"odradek_partition_log_bytes"} - known  # written by a sweep


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", (DOCS / "operating.md").read_text(), re.MULTILINE)
    rules = _rules()
    assert [rule["alert"] for rule in rules] == [name for name in headings if name.startswith("Odradek")]
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"docs/operating.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["summary"]


def _commands() -> list[str]:
    text = (DOCS / "operating.md").read_text().replace("\n", " ")
    return sorted(set(re.findall(r"`odradek ([a-z-]+ --[^`]+)`", text)))


def test_commands_are_found() -> None:
    assert len(_commands()) > 8


@pytest.mark.parametrize("command", _commands())
def test_every_command_has_its_options(command: str) -> None:
    name, *words = command.split()
    found = odradek.get_command(click.Context(odradek), name)
    assert found is not None
    options = {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options


def test_panels_do_not_overlap() -> None:
    seen: set[tuple[int, int]] = set()
    for panel in _panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & seen and at["x"] + at["w"] <= 24
        seen |= cells
