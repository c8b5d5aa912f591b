"""Step 6: time windows. Each is written once, when the watermark has passed its end (Spark's append mode)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.declaration.declaration import Aggregate
from odradek.pipeline.jobs.stages.declaration.sql import EVENT_TIME, RECORD, TIMESTAMP, quoted

_WINDOW = "__window"
START, END = "window_start", "window_end"


def aggregated(rows: DataFrame, declared: Aggregate | None) -> DataFrame:
    """One row for each window and each value of `by`; without `declared` the rows unchanged."""
    if declared is None:
        return rows
    window = F.window(EVENT_TIME, declared.window, declared.slide, declared.offset).alias(_WINDOW)
    by = [F.expr(expression).alias(name) for name, expression in declared.by.items()]
    values = [F.expr(expression).alias(name) for name, expression in declared.values.items()]
    newest = F.expr(f"max({RECORD}.timestamp)").alias(TIMESTAMP)
    ends = [F.col(f"{_WINDOW}.start").alias(START), F.col(f"{_WINDOW}.end").alias(END)]
    names = [F.col(quoted(name)) for name in (*declared.by, *declared.values, TIMESTAMP)]
    return rows.groupBy(window, *by).agg(*values, newest).select(*ends, *names)
