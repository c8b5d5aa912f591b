"""The costs of an authorizer, of quotas and of neighbouring clients: measured with real brokers, and reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.loadtest.harness.load_clients import Cost
from odradek.loadtest.harness.store import Entry, Results
from odradek.loadtest.measurements import guard_rows, neighbours
from odradek.loadtest.reports.report import markdown
from odradek.loadtest.reports.report_guards import guards_section, neighbours_section

pytestmark = pytest.mark.live


def cost(cpu_us: float = 10, p99: float = 0) -> dict[str, float]:
    return Cost(1000, 200, 1, cpu_us / 1000, 0, p99=p99).as_dict()


def test_report_has_a_section_on_guards() -> None:
    data = {name: [cost(cpu)] for name, cpu in zip(guard_rows.NAMES, (10, 10, 10.1, 12), strict=True)}
    results = Results({"guard-one": Entry(data, 1)})
    text = guards_section(results)
    assert "| … one in flight | 10.00 | 10.00 (1.00×) | 10.10 (1.01×) | 12.00 (1.20×) |" in text
    assert text in markdown(results)
    assert guards_section(Results()) == ""


def test_report_has_a_section_on_neighbours() -> None:
    data = {name: [cost(p99=p99)] for name, p99 in zip(neighbours.NEIGHBOURS, (200, 380, 250, 201), strict=True)}
    results = Results({neighbours.KEY: Entry(data, 1)})
    text = neighbours_section(results)
    assert "| 500 TLS connections a second | 0 µs | 380 µs | 1.90× |" in text
    assert text in markdown(results)
    assert neighbours_section(Results()) == ""


@pytest.mark.needs("librdkafka-dev")
def test_bench_measures_guards_and_neighbours(tmp_path: Path) -> None:
    words = ["--quick", "--folder", str(tmp_path), "--out", str(tmp_path / "kept"), "--rows", "guard-one,neighbours"]
    subprocess.run([sys.executable, "-m", "odradek.loadtest.bench", *words], cwd=tmp_path, check=True, timeout=240)
    kept = json.loads((tmp_path / "kept" / "results.json").read_text())["entries"]
    assert set(kept["guard-one"]["data"]) == set(guard_rows.NAMES)
    found = kept[neighbours.KEY]["data"]
    assert all(one["p99"] > 0 for name in neighbours.NEIGHBOURS for one in found[name])
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
