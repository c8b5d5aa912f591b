"""What the demo sends: a JSON event for each flight, in order of schedule, some of them twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from odradek.demo import data
from pyarrow import csv

DOUBLED = 1000
"""Each flight whose number in the order is a multiple of it is sent twice, as a producer without idempotence would
whose acknowledgement got lost."""
ROWS = 10_000


class Event(NamedTuple):
    """A record: `time` is the scheduled departure, ms since 1970."""

    key: bytes
    value: bytes
    time: int


def flights(limit: int | None = None) -> Iterator[Event]:
    """The table's columns as they are (`NA` is null), and `scheduled`, the departure in UTC."""
    table = csv.read_csv(data.flights(limit), convert_options=_CONVERT)
    table = table.sort_by([("time_hour", "ascending"), ("minute", "ascending")])
    number = 0
    for batch in table.to_batches(ROWS):
        for row in batch.to_pylist():
            number += 1
            event = _event(row)
            yield from (event, event) if number % DOUBLED == 0 else (event,)


def airlines() -> Iterator[Event]:
    """Key is the carrier's code, the value JSON with its name."""
    for row in csv.read_csv(data.airlines()).to_pylist():
        yield Event(row["carrier"].encode(), json.dumps(row).encode(), 0)


_CONVERT = csv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.timestamp("s", "UTC")}
)


def _event(row: dict[str, Any]) -> Event:
    scheduled = row["time_hour"].replace(minute=row["minute"])
    times = {"time_hour": row["time_hour"].isoformat(), "scheduled": scheduled.isoformat()}
    value = json.dumps({**row, **times}, separators=(",", ":")).encode()
    return Event(b"%b %d" % (row["carrier"].encode(), row["flight"]), value, int(scheduled.timestamp() * 1000))
