"""Metrics as text: Prometheus' format and OpenMetrics.

Families with few lines are written by Prometheus' own client library. Those with a line for each partition, which may
be hundreds of thousands, are filled into templates: one for each family and version of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

_END = b"# EOF\n"


class Labels:
    """The labels of many lines in their order, with the templates that were made of them."""

    def __init__(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """`rows`: the values of each line's labels."""
        template = ",".join(f'{name}="%s"' for name in names)
        self._texts = [template % tuple(map(_escaped, row)) for row in rows]
        self._templates: dict[str, bytes] = {}

    def fill(self, name: str, values: Sequence[int] | Sequence[float]) -> bytes:
        """A line of the metric `name` for each of the values."""
        template = self._templates.get(name)
        if template is None:
            lines = (f"{name}{{{text.replace('%', '%%')}}} %a\n" for text in self._texts)
            template = self._templates[name] = "".join(lines).encode()
        return template % tuple(values)


class LabelCache:
    """Labels by purpose, made again only when their rows are others than last time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Any], Labels]] = {}

    def of(self, purpose: str, names: Sequence[str], rows: list[Any]) -> Labels:
        """The labels of these rows; a purpose always has the same `names`."""
        known = self._known.get(purpose)
        if known is None or known[0] != rows:
            known = self._known[purpose] = rows, Labels(names, rows)
        return known[1]


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Family(NamedTuple):
    """One metric with many lines; a counter's `name` ends in `_total`, as in Prometheus' format. `whole`: the value of
    a line without labels before them, if there is one."""

    name: str
    kind: str
    help: str
    labels: Labels
    values: Sequence[int] | Sequence[float]
    whole: int | None = None


class Metrics(NamedTuple):
    """All of one scrape: the families with few lines, and those with many."""

    few: Sequence[Metric]
    many: Sequence[Family]


class Form(NamedTuple):
    """A text format: its encoder for the library's metrics, and its Content-Type."""

    encode: Callable[[CollectorRegistry], bytes]
    content_type: str
    is_openmetrics: bool


def form_of(accept: str) -> Form:
    """The format that a client's Accept header asks for."""
    encode, content_type = exposition.choose_encoder(accept)
    return Form(encode, content_type, content_type.startswith("application/openmetrics-text"))


class _Once(Collector):
    """A registry wants a collector; this has the metrics already."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def render(metrics: Metrics, form: Form) -> bytes:
    """The body of a response."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(metrics.few))
    body = form.encode(registry)
    end = _END if form.is_openmetrics else b""
    return body.removesuffix(end) + b"".join(_family(one, form) for one in metrics.many) + end


def _family(family: Family, form: Form) -> bytes:
    """OpenMetrics names a counter without its ending in the lines about it."""
    name = family.name.removesuffix("_total") if form.is_openmetrics and family.kind == "counter" else family.name
    head = f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()
    whole = b"" if family.whole is None else f"{family.name} {family.whole}\n".encode()
    return head + whole + family.labels.fill(family.name, family.values)
