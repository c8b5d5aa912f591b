"""Event times, for the steps that remember something: what has none, or no id, cannot be remembered and is bad.

Nulls would all be taken for the same id; and Spark leaves out of its windows what has no time.
"""

from __future__ import annotations

from odradek.pipeline.jobs.stages.declaration import Stage
from odradek.pipeline.jobs.stages.sql import EVENT_TIME, REASON, literal, quoted
from odradek.pipeline.jobs.stages.validate import blamed
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def timed(rows: DataFrame, stage: Stage) -> DataFrame:
    """Rows with `__event_time`."""
    rows = rows.withColumn(EVENT_TIME, F.expr(stage.event_time).cast("timestamp"))
    no_time = (f"{EVENT_TIME} IS NULL", literal(f"event_time is null ({stage.event_time})"))
    no_id = [(f"{quoted(name)} IS NULL", literal(f"{name} is null (deduplicate)")) for name in stage.deduplicate]
    return blamed(rows, [no_time, *no_id])


def watched(rows: DataFrame, stage: Stage) -> DataFrame:
    """The good ones, with the stage's watermark."""
    assert stage.watermark is not None, stage
    return rows.where(f"{REASON} IS NULL").withWatermark(EVENT_TIME, stage.watermark)
