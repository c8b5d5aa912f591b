"""The stream reader for PySpark 4.2 and later, which pass the end of the last batch and the limit for the next one."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.stream import Offsets, StreamReader

_INITIAL = {"initial": "as the options say"}


class AdmissionReader(StreamReader, SupportsTriggerAvailableNow):
    """The reader of one stream; Spark's planner process keeps it while the stream runs."""

    _until: Offsets | None = None  # with Trigger.AvailableNow: the ends when the query began
    _newest: Offsets | None = None  # the ends returned last

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit from the options. No limit of Spark has both bounds: `latestOffset` applies the minimum as well."""
        most, least = self._options.max_offsets, self._options.min_offsets
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: the query does not read later records."""
        self._until = self._available({})

    def initialOffset(self) -> dict[str, Any]:
        """A placeholder: Spark calls this before it shows whether the stream is new, and no checkpoint stores it."""
        return dict(_INITIAL)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` while there is nothing to do."""
        at = self._offsets(start)
        self._newest = available = self._available(at) if self._until is None else self._up_to(self._until, at)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        may_wait = self._until is None and not isinstance(limit, ReadAllAvailable)
        return offsets.as_json(self._next(at, available, most, may_wait))

    def _offsets(self, start: dict[str, Any]) -> Offsets:
        if start != _INITIAL:
            return offsets.from_json(start)
        if self._start is None:
            self._start = self._begin()
        return self._start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The pieces of the batch between two offsets. Without a call of `latestOffset` Spark redoes the first one."""
        if start == _INITIAL != end:
            if self._start is None:
                self._start = self._began(offsets.from_json(end))
            start = offsets.as_json(self._start)
        return super().partitions(start, end)

    def _up_to(self, until: Offsets, at: Offsets) -> Offsets:
        """`until`, but listed again where it is before what was read, or lacks a partition that was: a new leader may
        report that for a moment, or a broker whose metadata lags behind.
        """
        behind = {key for key, offset in at.items() if until.get(key, -1) < offset}
        if not behind:
            return until
        now = self._available(at)
        return until | {key: now[key] for key in behind & now.keys()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs at the last `latestOffset` call; Spark's progress shows them."""
        return None if self._newest is None else offsets.as_json(self._newest)
