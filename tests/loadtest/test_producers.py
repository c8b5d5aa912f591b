"""The bench of producer tables at a small scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.loadtest.harness.store import Entry, Results
from odradek.loadtest.measurements import producers
from odradek.loadtest.reports.report import markdown
from odradek.loadtest.reports.report_producers import producers_section

pytestmark = pytest.mark.live


@pytest.mark.parametrize("key", list(producers.LOADS))
def test_each_step_of_a_producer_table_is_measured(tmp_path: Path, key: str) -> None:
    entry = producers.measure(key, tmp_path, 2, 0.002)
    assert len(entry.data["Odradek"]) == 2
    for found in entry.data["Odradek"]:
        for step in producers.STEPS:
            cpu, held, longest = (found[f"{step}_{what}_ms"] for what in ("cpu", "held", "longest"))
            assert cpu >= held >= longest > 0
        assert found["snapshot_mb"] == pytest.approx((10 + 46 * int(producers.LOADS[key].producers * 0.002)) / 1e6)
    assert not list(tmp_path.iterdir())


def test_report_has_a_section_on_producer_tables() -> None:
    one = {f"{step}_{what}_ms": 1000.0 for step in producers.STEPS for what in ("cpu", "held", "longest")}
    results = Results({"producers-1m": Entry({"Odradek": [one]}, 1)})
    text = producers_section(results)
    assert "| 1,000,000 | 1,000 CPU ms, 1,000 locked, 1,000 at once |" in text
    assert text in markdown(results)
    assert producers_section(Results()) == ""
