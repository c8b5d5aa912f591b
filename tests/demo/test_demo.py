"""`make demo` with a small share of the flights, and its report on a wrong figure."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyarrow import parquet

from odradek.demo import direct, events, figures
from odradek.demo.figures import Figures, Sum, Sums

from ..harness.process import die_with_parent

FLIGHTS = 3000
SECONDS = 900
PNG = b"\x89PNG\r\n\x1a\n"


class Demo(NamedTuple):
    """A run that has ended."""

    folder: Path
    status: int
    said: str


def demo(folder: Path, *words: str) -> Demo:
    """Run the demo with its report in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek.demo", "--flights", str(FLIGHTS), *words],
        env={**os.environ, "ODRADEK_DEMO_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        preexec_fn=die_with_parent,
    )
    return Demo(folder, done.returncode, done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A complete run."""
    yield demo(tmp_path_factory.mktemp("demo"))


@pytest.mark.live
@pytest.mark.needs("java")
@pytest.mark.timeout(SECONDS)
def test_all_figures_equal_the_direct_computation(whole: Demo) -> None:
    assert whole.status == 0, whole.said
    assert "numbers checked: all equal those computed directly" in whole.said
    assert (whole.folder / "delays.png").read_bytes().startswith(PNG)
    with (whole.folder / "airlines.csv").open() as file:
        rows = {row["airline"]: row for row in csv.DictReader(file)}
    expected = direct.figures(FLIGHTS, events.DOUBLED)
    assert {name: Sum(int(row["flights"]), int(row["minutes"])) for name, row in rows.items()} == expected.airlines
    assert sum(int(row["cancelled"]) for row in rows.values()) == expected.cancelled.total() > 0


@pytest.mark.live
@pytest.mark.needs("java")
@pytest.mark.timeout(SECONDS)
def test_wrong_figure_is_reported(whole: Demo, tmp_path: Path) -> None:
    """An added minute in one window of the archive makes that window, its airline, day and hour differ."""
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    airline = _add_a_minute(tmp_path / "flights-archive/topic=flights.hourly")
    broken = demo(tmp_path, "--report-only")
    assert broken.status == 1
    told = [line for line in broken.said.splitlines() if line.startswith("demo: ")]
    assert [line.split()[1] for line in told] == ["windows,", "airlines,", "days,", "hours,"]
    assert all(airline in line for line in told[:2])


def _add_a_minute(topic: Path) -> str:
    """Add a minute to the first window of the topic; return its airline."""
    path = next(topic.rglob("*.parquet"))
    table = parquet.read_table(path, partitioning=None)
    values = table["value"].to_pylist()
    row = json.loads(values[0])
    values[0] = json.dumps({**row, "minutes": row["minutes"] + 1}).encode()
    at = table.column_names.index("value")
    parquet.write_table(table.set_column(at, table.field("value"), [values]), path)
    return str(row["airline"])


@pytest.mark.slow
def test_direct_computation_of_the_year_equals_published_figures() -> None:
    """The literature on this data gives 328,521 departures of 336,776 flights, on average 12.64 minutes late."""
    year = direct.figures(None, events.DOUBLED)
    assert year.events["flights"] == 336_776 + 336
    assert (year.total().flights, round(year.total().mean, 2)) == (328_521, 12.64)
    assert (year.cancelled.total(), len(year.days), sorted(year.hours)) == (8_255, 365, [*range(5, 24)])


def test_events_are_ordered_and_each_thousandth_is_sent_twice() -> None:
    """Events are in order of schedule, each thousandth twice; a clock event ends them."""
    sent = list(events.flights(FLIGHTS))
    assert [event.time for event in sent] == sorted(event.time for event in sent)
    doubled = len(sent) - len(set(sent))
    assert (doubled, len(sent)) == (FLIGHTS // events.DOUBLED, FLIGHTS + doubled + 1)
    assert json.loads(sent[-1].value)["carrier"] == "--"
    first = json.loads(sent[0].value)
    assert (first["scheduled"], first["hour"], first["minute"]) == ("2013-01-01T10:15:00Z", 5, 15)
    assert sent[0].time == 1_357_035_300_000


def test_differences_name_wrong_extra_and_missing_figures() -> None:
    mine = Figures(hours=Sums({5: Sum(1, 2), 6: Sum(1, 1), 7: Sum(1, 0)}))
    right = Figures(hours=Sums({5: Sum(1, 2), 6: Sum(2, 1), 8: Sum(3, 0)}))
    assert figures.differences(mine, mine) == []
    assert figures.differences(mine, right) == [
        "hours, 6: 1 flights with 1 minutes, and directly 2 flights with 1 minutes",
        "hours, 7: 1 flights with 0 minutes, and directly nothing",
        "hours, 8: nothing, and directly 3 flights with 0 minutes",
    ]
