"""The bench runs: real kcat, a real broker, no figure from a load that went wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from odradek.loadtest.brokers import Running
from odradek.loadtest.work import LOADS, Lines, LoadError, run

from tests.harness.broker import Broker


def test_lines_have_their_size(tmp_path: Path) -> None:
    path = Lines(tmp_path).file(3000, 201)
    assert {len(line) for line in path.read_text().splitlines()} == {201}
    assert path.stat().st_size == 3000 * 202


@pytest.mark.needs("kcat")
def test_bench_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "RESULTS.md"
    words = ["--quick", "--only-odradek", "--load", "fifty", "--load", "read", "--folder", tmp_path, "--out", report]
    subprocess.run([sys.executable, "-m", "odradek.loadtest.bench", *words], cwd=tmp_path, check=True, timeout=240)
    text = report.read_text()
    assert "200 B, batch 50" in text
    assert "consume 1 KB" in text
    assert "MiB after the loads" in text


class _NotThere:
    """A broker that has gone."""

    name, bootstrap = "nobody", "127.0.0.1:1"

    def cpu(self) -> float:
        return 0.0


@pytest.mark.needs("kcat")
def test_a_load_that_fails_gives_no_figure(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nobody"):
        run(LOADS[0], cast(Running, _NotThere()), Lines(tmp_path), 0.01)


@pytest.mark.needs("kcat")
def test_a_lost_message_gives_no_figure(fresh_broker: Callable[..., Broker], tmp_path: Path) -> None:
    from odradek.loadtest.work import _check_end, _send

    broker = cast(Running, _Seen(fresh_broker().bootstrap))
    _send(broker, "short", Lines(tmp_path).file(1000, 10), ())
    _check_end(broker, "short", 1000)
    with pytest.raises(LoadError, match="should end at 1001"):
        _check_end(broker, "short", 1001)


class _Seen(_NotThere):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
