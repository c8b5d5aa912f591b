"""The report's arithmetic, on costs made up here."""

from __future__ import annotations

from typing import cast

import pytest
from odradek.loadtest.brokers import Running
from odradek.loadtest.report import Results, line, markdown, ratio, table, verdict
from odradek.loadtest.work import FIRST, LOADS, Cost, Load


class _Named:
    """As much of a broker as a report wants."""

    def __init__(self, name: str) -> None:
        self.name, self.version = name, "1"


KAFKA, ODRADEK = (cast(Running, _Named(name)) for name in ("Apache Kafka", "Odradek"))


def load(key: str) -> Load:
    return next(one for one in LOADS if one.key == key)


def results(kafka: list[float], odradek: list[float], key: str = FIRST) -> Results:
    """Results with these broker CPU seconds for 1000 messages in each round."""
    made = Results(len(odradek), 1)
    for broker, seconds in ((KAFKA, kafka), (ODRADEK, odradek)):
        for cpu in seconds:
            made.add(load(key), broker, Cost(1000, load(key).size, 2.0, cpu, 0.1))
    return made


def test_cost_is_per_message() -> None:
    cost = Cost(messages=1_000_000, size=1000, seconds=4, broker_cpu=2.5, client_cpu=1)
    assert cost.rate == 250_000
    assert cost.cpu_us == 2.5
    assert cost.cpu_per_gb == 2.5


def test_ratio_is_of_medians() -> None:
    assert ratio(results(kafka=[1, 9, 2], odradek=[0.1, 0.9, 0.2]), FIRST) == pytest.approx(0.1)


def test_no_ratio_without_kafka() -> None:
    alone = results(kafka=[], odradek=[1])
    assert ratio(alone, FIRST) is None
    assert "not measured" in verdict(alone)
    assert "Apache Kafka" not in table(alone)


@pytest.mark.parametrize(("odradek", "word"), [(0.2, ": kept"), (0.21, "NOT kept")])
def test_verdict_on_the_promise(odradek: float, word: str) -> None:
    assert word in verdict(results(kafka=[1], odradek=[odradek]))


def test_table_has_a_row_for_each_load_that_ran() -> None:
    rows = table(results(kafka=[1], odradek=[0.5], key="full")).splitlines()
    assert len(rows) == 3
    assert rows[2].startswith("| 1 KB, full batches |")
    assert rows[2].endswith("| 0.50 |")
    assert "CPU s/GB" in rows[2]


def test_line_rounds_for_readers() -> None:
    assert line("x", [Cost(1_000_000, 200, 2, 1, 0)]) == "500 k msg/s, 1.00 µs"
    assert line("x", [Cost(1000, 200, 2, 1, 0)]) == "0.5 k msg/s, 1000.00 µs"


def test_a_quick_run_says_so() -> None:
    quick = results(kafka=[1], odradek=[1])
    quick.scale = 0.1
    assert "rough" in markdown(quick)
    assert "hardly warm" in verdict(quick)
    assert "rough" not in markdown(results(kafka=[1], odradek=[1]))
