"""The events that the demo sends: a JSON event for each flight, in order of schedule, some of them twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv

from odradek.demo import data

DOUBLED = 1000
"""Every thousandth row is sent twice, as by a producer without idempotence that missed an acknowledgement."""
CLOCK = timedelta(days=2)
"""The time from the last flight to an extra event, which closes the windows before it; its own stays open."""
ROWS = 10_000
NEW_YEAR = 1_356_998_400_000  # 2013, in ms


class Event(NamedTuple):
    """A record: `time` is the scheduled departure, ms since 1970."""

    key: bytes
    value: bytes
    time: int


def flights(limit: int | None = None) -> Iterator[Event]:
    """The table's columns unchanged (`NA` is null), and `scheduled`, the departure in UTC; then the clock event."""
    table = csv.read_csv(data.flights(limit), convert_options=_CONVERT)
    table = table.append_column("number", pa.array(range(1, len(table) + 1)))
    table = table.sort_by([("time_hour", "ascending"), ("minute", "ascending")])
    for batch in table.to_batches(ROWS):
        for row in batch.to_pylist():
            yield from _events(row)
    yield _clock(row["time_hour"] + CLOCK)


def airlines() -> Iterator[Event]:
    """The key is the carrier's code, the value JSON with its name."""
    for row in csv.read_csv(data.airlines()).to_pylist():
        yield Event(row["carrier"].encode(), _json(row), NEW_YEAR)


_CONVERT = csv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.timestamp("s", "UTC")}
)


def _events(row: dict[str, Any]) -> Iterator[Event]:
    doubled = row.pop("number") % DOUBLED == 0
    event = _event(row, row["time_hour"].replace(minute=row["minute"]))
    yield from (event, event) if doubled else (event,)


def _clock(time: datetime) -> Event:
    return _event({"carrier": "--", "flight": 0, "dep_delay": 0, "time_hour": time}, time)


def _event(row: dict[str, Any], scheduled: datetime) -> Event:
    value = {**row, "time_hour": _text(row["time_hour"]), "scheduled": _text(scheduled)}
    key = b"%b %d" % (row["carrier"].encode(), row["flight"])
    return Event(key, _json(value), int(scheduled.timestamp() * 1000))


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
