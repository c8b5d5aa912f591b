"""Event times for the stateful steps: a row without a time, or without an id, is bad.

Otherwise all nulls would count as the same id, and Spark leaves rows without a time out of its windows. One time far
ahead would advance the watermark, and all later rows would be late.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.declaration.declaration import Stage
from odradek.pipeline.jobs.stages.declaration.sql import EVENT_TIME, REASON, Blame, literal, quoted, whole
from odradek.pipeline.jobs.stages.steps.validate import blamed


def timed(rows: DataFrame, stage: Stage) -> DataFrame:
    """Rows with `__event_time`."""
    rows = rows.withColumn(EVENT_TIME, F.expr(stage.event_time).cast("timestamp"))
    no_time = (f"{EVENT_TIME} IS NULL", literal(f"event_time is null ({stage.event_time})"))
    ahead = _ahead(EVENT_TIME, f"event_time is more than {stage.ahead} ahead ({stage.event_time})", stage)
    no_id = [(f"{quoted(name)} IS NULL", literal(f"{name} is null (deduplicate)")) for name in stage.deduplicate]
    return blamed(rows, [no_time, ahead, *no_id])


def stamped(rows: DataFrame, stage: Stage) -> DataFrame:
    """Finished rows; bad if no topic accepts their `timestamp`. For a window no single record is to blame."""
    if stage.timestamp is None or stage.aggregate:
        return rows
    time = f"timestamp{whole(stage.timestamp)}"
    before = (f"{time} < timestamp_millis(0)", literal(f"timestamp is before 1970 ({stage.timestamp})"))
    return blamed(
        rows, [before, _ahead(time, f"timestamp is more than {stage.ahead} ahead ({stage.timestamp})", stage)]
    )


def _ahead(time: str, what: str, stage: Stage) -> Blame:
    """By the clock at the start of the batch, which is the same when it is done again."""
    return f"{time} > current_timestamp() + INTERVAL '{stage.ahead}'", literal(what)


def watched(rows: DataFrame, stage: Stage) -> DataFrame:
    """The good rows, with the stage's watermark."""
    assert stage.watermark is not None, stage
    return rows.where(f"{REASON} IS NULL").withWatermark(EVENT_TIME, stage.watermark)
