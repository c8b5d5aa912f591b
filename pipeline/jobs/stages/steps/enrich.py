"""Step 5: the latest value of a key in a compacted topic.

Each batch reads the whole topic again (`whole_topic`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.jobs.stages.declaration.declaration import Enrich
from odradek.pipeline.jobs.stages.declaration.sql import REASON, RECORD, quoted
from odradek.pipeline.jobs.stages.steps.parse import Reading, parsed

_KEY, _ON = "__key", "__on"


def table(records: DataFrame, declared: Enrich, reading: Reading) -> DataFrame:
    """Key (text) and value (struct, null where it cannot be parsed) of rows with `record`; without tombstones."""
    rows = parsed(_latest(records).where(f"{RECORD}.value IS NOT NULL"), reading)
    columns = ", ".join(map(quoted, reading.columns.names))
    value = F.expr(f"CASE WHEN {REASON} IS NULL THEN struct({columns}) END")
    return rows.select(F.expr(f"string({RECORD}.key)").alias(_KEY), value.alias(declared.column))


def _latest(records: DataFrame) -> DataFrame:
    """The last record of each key. Within a partition offsets decide; a key is in several partitions if partitions were
    added, and between these timestamps decide.
    """
    key = F.expr(f"{RECORD}.key")
    of_partitions = records.where(key.isNotNull()).groupBy(key, F.expr(f"{RECORD}.partition"))
    found = of_partitions.agg(F.expr(f"max_by({RECORD}, {RECORD}.offset)").alias(RECORD))
    newest = f"max_by({RECORD}, struct({RECORD}.timestamp, {RECORD}.partition))"
    return found.groupBy(key).agg(F.expr(newest).alias(RECORD))


def enriched(rows: DataFrame, declared: Enrich, table: DataFrame) -> DataFrame:
    """Rows with the new column. Bad rows pass, also with `inner`."""
    found = F.broadcast(table) if declared.broadcast else table
    rows = rows.withColumn(_ON, F.expr(declared.on).cast("string"))
    joined = rows.join(found, F.col(_ON) == F.col(_KEY), "left")
    if declared.inner:
        joined = joined.where(f"{_KEY} IS NOT NULL OR {REASON} IS NOT NULL")
    return joined.drop(_ON, _KEY)
