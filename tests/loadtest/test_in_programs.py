"""The bench of brokers and log handlers inside programs, at a small scale, and its part of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.loadtest.harness.store import Entry, Results
from odradek.loadtest.measurements import in_programs
from odradek.loadtest.measurements.curves import Bench
from odradek.loadtest.measurements.in_programs import FILE_HANDLER, KAFKA_HANDLER, LOG, ODRADEK, START
from odradek.loadtest.reports.report import markdown
from odradek.loadtest.reports.report_in_programs import in_programs_section

pytestmark = pytest.mark.live


def test_start_of_a_broker_is_measured_in_a_program_of_its_own(tmp_path: Path) -> None:
    entry = in_programs.measure([], START, Bench(tmp_path, 1, 1))
    (found,) = entry.data[ODRADEK]
    assert found["seconds"] > 0 and found["cpu"] > 0 and found["pss"] > 10


def test_both_handlers_are_measured_and_leave_nothing(tmp_path: Path) -> None:
    entry = in_programs.measure([], LOG, Bench(tmp_path, 1, 0.01))
    assert {name: len(rounds) for name, rounds in entry.data.items()} == {KAFKA_HANDLER: 1, FILE_HANDLER: 1}
    for (found,) in entry.data.values():
        assert found["rate"] == pytest.approx(1000 / found["seconds"])
    assert entry.data[KAFKA_HANDLER][0]["client_cpu"] > 0
    assert not list(tmp_path.iterdir())


def test_report_compares_a_start_with_its_targets_and_the_handlers_with_each_other() -> None:
    start = {"seconds": 0.25, "cpu": 0.4, "pss": 60.0}
    logged = {"rate": 50_000, "seconds": 6, "client_cpu": 2.0, "broker_cpu": 0.1}
    data = {KAFKA_HANDLER: [logged], FILE_HANDLER: [{**logged, "rate": 100_000, "client_cpu": 1.0}]}
    results = Results({START: Entry({ODRADEK: [start]}, 1), LOG: Entry(data, 1)})
    text = in_programs_section(results)
    assert "| 0.25 s | 0.40 s | 63 MB |" in text
    assert "First answer ≤ 0.3 s: met. PSS ≤ 60 MB: MISSED." in text
    assert f"| {KAFKA_HANDLER} | 50 k | 20.00 µs | 1.00 µs |" in text
    assert f"| {FILE_HANDLER} | 100 k | 10.00 µs | – |" in text
    assert text in markdown(results)
    assert in_programs_section(Results()) == ""
