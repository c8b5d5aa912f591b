"""The text formats, read by Prometheus' own parsers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from odradek.broker.exporter import text
from odradek.broker.exporter.text import Family, LabelCache, Labels, Metrics

from .scraping import OPENMETRICS, of, parsed

_VALUES = st.one_of(st.integers(-(1 << 53), 1 << 53), st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@given(rows=st.dictionaries(st.text(), _VALUES, max_size=5))
def test_any_label_and_any_value_are_read_back(accept: str, rows: dict[str, float]) -> None:
    family = Family("odradek_any", "gauge", "Any.", Labels(("a", "b"), [(key, 7) for key in rows]), list(rows.values()))
    values = parsed(text.render(Metrics([], [family]), text.form_of(accept)), accept)
    assert len(values) == len(rows)
    for key, value in rows.items():
        assert math.isclose(of(values, "odradek_any", a=key, b=7), value)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_families_of_both_kinds_make_one_document(accept: str) -> None:
    few = [CounterMetricFamily("odradek_few", "Few.", 3), GaugeMetricFamily("odradek_now", "Now.", 4)]
    many = [Family("odradek_many_total", "counter", "Many.", Labels(("a",), [("x",), ("y",)]), [1, 2])]
    values = parsed(text.render(Metrics(few, many), text.form_of(accept)), accept)
    assert of(values, "odradek_few_total") == 3
    assert of(values, "odradek_now") == 4
    assert of(values, "odradek_many_total", a="x") == 1
    assert of(values, "odradek_many_total", a="y") == 2


def test_labels_are_made_again_only_for_other_rows() -> None:
    cache = LabelCache()
    first = cache.of("partitions", ("topic",), [("a",)])
    assert cache.of("partitions", ("topic",), [("a",)]) is first
    assert cache.of("led", ("topic",), [("a",)]) is not first
    assert cache.of("partitions", ("topic",), [("b",)]).fill("name", [1]) == b'name{topic="b"} 1\n'
