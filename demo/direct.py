"""Compute the figures from the package's CSV: no Kafka, no Spark, no Arrow, and none of the code that sends events."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime

from odradek.demo import data
from odradek.demo.figures import Figures

Row = dict[str, str]


def figures(limit: int | None, doubled: int) -> Figures:
    """The figures of the first `limit` rows of the table; every `doubled`th row was sent twice."""
    made, names = Figures(), {row["carrier"]: row["name"] for row in _rows(data.airlines())}
    for number, row in enumerate(_rows(data.flights(limit)), 1):
        _count(made, row, 2 if number % doubled == 0 else 1)
        _add(made, row, names[row["carrier"]])
    made.means = {window: one.mean for window, one in made.windows.items()}
    return made


def _rows(file: Iterable[bytes]) -> Iterator[Row]:
    yield from csv.DictReader(line.decode() for line in file)


def _count(made: Figures, row: Row, times: int) -> None:
    made.events["flights"] += times
    made.events["cancelled" if _cancelled(row) else "departed"] += times
    made.events["unique"] += not _cancelled(row)


def _cancelled(row: Row) -> bool:
    return row["dep_delay"] == "NA"


def _add(made: Figures, row: Row, airline: str) -> None:
    if _cancelled(row):
        made.cancelled[airline] += 1
        return
    minutes = int(row["dep_delay"])
    made.windows.add((_utc(row["time_hour"]), airline), 1, minutes)
    made.airlines.add(airline, 1, minutes)
    made.days.add(date(int(row["year"]), int(row["month"]), int(row["day"])), 1, minutes)
    made.hours.add(int(row["hour"]), 1, minutes)


def _utc(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
