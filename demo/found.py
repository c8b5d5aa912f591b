"""The figures from the pipeline: read from the Parquet files of its archive, as any reader of Parquet could."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyarrow import dataset

from odradek.demo.data import DemoError
from odradek.demo.figures import Figures

NEW_YORK = ZoneInfo("America/New_York")
CLOCKS = 1
"""Clock events in each flow of departures."""


def figures(archive: Path) -> Figures:
    """The figures of the archive in this folder."""
    made = Figures()
    names = {row["carrier"]: row["name"] for row in _values(archive, "airlines")}
    made.events["flights"] = _count(archive, "flights") - CLOCKS
    made.events["departed"] = _count(archive, "flights.departed") - CLOCKS
    made.events["unique"] = _count(archive, "flights.unique") - CLOCKS
    _add_cancelled(made, list(_values(archive, "flights.cancelled")), names)
    for row in _values(archive, "flights.hourly"):
        _add_window(made, row)
    return made


def _topic(archive: Path, topic: str) -> dataset.Dataset:
    folder = archive / f"topic={topic}"
    if not folder.is_dir():
        raise DemoError(f"the archive has no records of topic {topic}: {folder} does not exist")
    return dataset.dataset(folder, format="parquet")


def _count(archive: Path, topic: str) -> int:
    return int(_topic(archive, topic).count_rows())


def _values(archive: Path, topic: str) -> Iterator[dict[str, Any]]:
    for batch in _topic(archive, topic).to_batches(columns=["value"]):
        yield from map(json.loads, batch["value"].to_pylist())


def _add_cancelled(made: Figures, letters: list[dict[str, Any]], names: dict[str, str]) -> None:
    """Dead letters have duplicates: only this code drops them."""
    made.events["cancelled"] = len(letters)
    made.cancelled.update(names[carrier] for carrier, _, _ in {_key(row) for row in letters})


def _key(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["carrier"], row["flight"], row["scheduled"]


def _add_window(made: Figures, row: dict[str, Any]) -> None:
    start = datetime.fromisoformat(row["window_start"]).astimezone(UTC)
    there = start.astimezone(NEW_YORK)
    what = row["flights"], row["minutes"]
    made.windows.add((start, row["airline"]), *what)
    made.means[start, row["airline"]] = row["mean_delay"]
    made.airlines.add(row["airline"], *what)
    made.days.add(there.date(), *what)
    made.hours.add(there.hour, *what)
