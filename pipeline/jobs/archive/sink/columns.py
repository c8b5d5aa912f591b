"""The columns written for a batch: keys and values in their formats, and the hour that files a record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.formats import Formats, Shape
from odradek.pipeline.jobs.row_by_row import keeps_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FOLDERS = ("topic", "date", "hour")
"""Columns that are folders."""

_FIRST, _LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"  # dates that all readers support
_NO_TIME = -1  # ms, of a record without one
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class Columns:
    """How topics are archived; `event_time` is an expression over the columns, None for the record's timestamp."""

    formats: Formats = field(default_factory=Formats)
    event_time: str | None = None

    def check(self, spark: SparkSession, topics: Sequence[str]) -> dict[str, str]:
        """Try it on an empty frame; returns the digest of each topic's columns. Raises OptionError, one line."""
        from pyspark.errors import PySparkException

        from odradek.pipeline.source import SCHEMA_WITH_HEADERS

        shapes.check(self.formats)
        empty = spark.createDataFrame([], SCHEMA_WITH_HEADERS)
        digests: dict[str, str] = {}
        for shape, names in self._groups(topics):
            shaped = shapes.shape(empty, shape)
            try:
                self._check_time(shaped)
            except PySparkException as error:
                raise OptionError(f"--event-time {self.event_time}: {str(error).splitlines()[0]}") from None
            digests |= dict.fromkeys(names, digest(shaped))
        return digests

    def of(self, frame: DataFrame, topics: Sequence[str]) -> list[DataFrame]:
        """The rows to write: one frame, or one for each format of `topics`, which reads the frame each time."""
        from pyspark.sql import functions as F

        groups = self._groups(topics)
        parts = [(shape, frame.where(F.col("topic").isin(names))) for shape, names in groups]
        if len(groups) == 1:
            parts = [(groups[0][0], frame)]
        return [self._with_hours(shapes.shape(part, shape)) for shape, part in parts]

    def _groups(self, topics: Sequence[str]) -> list[tuple[Shape, list[str]]]:
        shaped = sorted(((self.formats.of(topic), topic) for topic in topics), key=lambda each: (each[0].name, each[1]))
        return [(shape, [topic for _, topic in same]) for shape, same in groupby(shaped, key=lambda each: each[0])]

    def _check_time(self, shaped: DataFrame) -> None:
        """Require one value for each row, and a time."""
        if self.event_time is None:
            return
        kinds = [field.dataType.simpleString() for field in shaped.selectExpr(self.event_time).schema.fields]
        if len(kinds) != 1:
            raise OptionError(
                f"--event-time {self.event_time}: the expression has {len(kinds)} columns; it must have one"
            )
        if kinds[0] not in _TIMES:
            raise OptionError(
                f"--event-time {self.event_time}: the type is {kinds[0]}; convert it to a timestamp, for example with "
                "CAST(milliseconds / 1000 AS TIMESTAMP) or try_to_timestamp(text)"
            )
        if not keeps_rows(shaped, self._with_hours(shaped)):
            raise OptionError(f"--event-time {self.event_time}: the expression must have one value for each record")

    def _with_hours(self, shaped: DataFrame) -> DataFrame:
        """Add `date` and `hour` in UTC, null where there is no time."""
        from pyspark.sql import functions as F

        hours = F.floor(F.unix_seconds(self._time()) / 3600)
        texts = F.array(*[F.lit(f"{hour:02}") for hour in range(24)])
        date = F.date_from_unix_date(F.floor(hours / 24).cast("int"))
        return shaped.withColumns({"date": date, "hour": texts[F.pmod(hours, F.lit(24)).cast("int")]})

    def _time(self) -> Column:
        from pyspark.sql import functions as F

        ours = f"if(unix_millis(timestamp) = {_NO_TIME}, null, timestamp)"
        time = F.expr(self.event_time or ours).cast("timestamp")
        return F.when(time.between(F.lit(_FIRST).cast("timestamp"), F.lit(_LAST).cast("timestamp")), time)


def digest(frame: DataFrame) -> str:
    """Equal for the files of frames with the same columns."""
    return hashlib.sha256(frame.drop(*FOLDERS).schema.json().encode()).hexdigest()[:16]
