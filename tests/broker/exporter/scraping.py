"""Scrapes a broker's exporter as Prometheus does: over HTTP, with Prometheus' own parsers."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def get(address: str, path: str, accept: str = "") -> bytes:
    """The body of a page. Raises HTTPError."""
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=30) as response:
        body: bytes = response.read()
        return body


def parsed(body: bytes, accept: str = "") -> Values:
    """Each sample by its name and labels; fails if two samples have the same name and labels."""
    parse = openmetrics.text_string_to_metric_families if accept else text_string_to_metric_families
    samples = [sample for family in parse(body.decode()) for sample in family.samples]
    values = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}
    assert len(values) == len(samples), "two samples have the same name and labels"
    return values


def scrape(address: str, names: str = "odradek", accept: str = "") -> Values:
    """All samples of `/metrics`."""
    return parsed(get(address, f"/metrics?names={names}", accept), accept)


def of(values: Values, name: str, **labels: object) -> float:
    """One sample."""
    return values[name, _labels(labels)]


def total(values: Values, name: str) -> float:
    """The sum of all samples of a name."""
    return sum(value for (found, _), value in values.items() if found == name)


def _labels(labels: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))
