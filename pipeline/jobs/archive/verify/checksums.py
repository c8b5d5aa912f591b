"""Count records and add up their checksums, in Spark: equal sums of equal numbers of records mean equal records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from odradek.pipeline.types import Range

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NESTED = ("struct", "array", "map")
_AS_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
EXTRA, MISSING, DOUBLED, CHANGED = range(4)

Sums = dict[int, tuple[int, int]]
"""By partition: records, sum of checksums."""


def checksum(frame: DataFrame, names: list[str]) -> Column:
    """The checksum of these columns. Spark's hash skips nulls, also nested ones, so it includes their positions."""
    from pyspark.sql import functions as F

    parts = []
    for name in sorted(names):
        nested = frame.schema[name].dataType.typeName() in _NESTED
        parts += [F.to_json(name, _AS_JSON) if nested else F.col(name), F.col(name).isNull()]
    return F.xxhash64(*parts)


def total(column: Column) -> Column:
    """The sum of checksums, without overflow."""
    from pyspark.sql import functions as F

    return F.sum(column.cast("decimal(20,0)"))


def of(frame: DataFrame) -> Sums:
    """The sums of a whole frame."""
    from pyspark.sql import functions as F

    summed = frame.groupBy("partition").agg(F.count("*"), total(checksum(frame, frame.columns)))
    return {partition: (count, int(sum_)) for partition, count, sum_ in summed.collect()}


def within(frame: DataFrame, ranges: Mapping[int, Range]) -> DataFrame:
    """The records of these offsets, by partition."""
    from pyspark.sql import functions as F

    both = F.col("partition"), F.col("offset")
    parts = [(both[0] == one.partition) & (both[1] >= one.start) & (both[1] < one.end) for one in ranges.values()]
    return frame.where(reduce(lambda some, more: some | more, parts, F.lit(False)))


def differing(archive: DataFrame, log: DataFrame) -> list[tuple[int, int, int, int, int]]:
    """Records that differ between the two: (partition, kind, how many offsets, the first, the last)."""
    from pyspark.sql import functions as F

    here, there = (
        frame.groupBy("partition", "offset").agg(F.count("*").alias(f"n_{name}"), total(F.col("sum")).alias(name))
        for name, frame in (("archive", _summed(archive)), ("log", _summed(log)))
    )
    kind = (
        F.when(F.col("log").isNull(), EXTRA)
        .when(F.col("archive").isNull(), MISSING)
        .when(F.col("n_archive") > F.col("n_log"), DOUBLED)
        .when(F.col("archive") != F.col("log"), CHANGED)
    )
    joined = here.join(there, ["partition", "offset"], "full").withColumn("kind", kind).where("kind is not null")
    found = joined.groupBy("partition", "kind").agg(F.count("*"), F.min("offset"), F.max("offset"))
    return sorted((row[0], row[1], row[2], row[3], row[4]) for row in found.collect())


def _summed(frame: DataFrame) -> DataFrame:
    return frame.select("partition", "offset", checksum(frame, frame.columns).alias("sum"))
