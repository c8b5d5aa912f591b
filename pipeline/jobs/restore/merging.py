"""Restore by key: the order of records from several partitions, and the steps.

The target's partitions are not the archive's, and a key may have lived in several of the latter, because topics get
more partitions. Only times say which of the key's records came first. A record's level is the latest time in its
partition up to that record, so the order within a partition stays. Records are ordered by level, partition and offset.

A step is a piece of that order. In each partition it is a range of offsets, because levels never fall, and it has at
most the allowed number of records: a partition's blocks of that size end at some levels, and between two neighbours of
all these levels no partition has more. One level may have more, when times stand still or were far ahead once: it is
cut by partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.types import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MOST = 64  # units: each has a producer in its task
Cuts = Mapping[int, Sequence[int]]
"""By partition the offsets at which levels begin, and the last one's end: the same levels for all partitions."""


def steps(rows: DataFrame, ranges: Mapping[int, Range], size: int) -> Iterator[dict[int, Range]]:
    """The ranges to write at once, at most `size` records of each partition, in order. `rows` are within `ranges`."""
    from pyspark.sql import functions as F

    times = rows.select("partition", "offset", F.unix_millis("timestamp").alias("time"))
    found = bounds(_maxima(times, size))
    yield from cut(_cuts(times, ranges, found), found, ranges, size)


def ordered(rows: DataFrame, partitions: int) -> DataFrame:
    """A step's rows with the column `unit`, always the same for a key; each unit's rows are in one task, in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    count = min(partitions, _MOST)
    level = F.max("timestamp").over(Window.partitionBy("partition").orderBy("offset"))
    key = F.when(F.col("key").isNull(), F.col("partition")).otherwise(F.xxhash64("key"))
    named = rows.withColumns({"level": level, "unit": F.pmod(key, F.lit(count))})
    return named.repartition(count, "unit").sortWithinPartitions("level", "partition", "offset")


def bounds(maxima: Iterable[tuple[int, int, int]]) -> list[int]:
    """The times (ms) at which levels begin, from (partition, block, latest time in it): each block's last level, and
    the next one.
    """
    found = set[int]()
    for _, blocks in groupby(sorted(maxima), key=lambda row: row[0]):
        found.update(accumulate((latest for _, _, latest in blocks), max))
    return sorted(found | {level + 1 for level in found})


def cut(cuts: Cuts, found: Sequence[int], ranges: Mapping[int, Range], size: int) -> Iterator[dict[int, Range]]:
    """As many levels at once as `size` allows; `found` are their bounds."""
    begun = {index: offsets[0] for index, offsets in cuts.items()}
    single = [0 < at < len(found) and found[at] - found[at - 1] == 1 for at in range(len(found) + 1)]
    for (here, until), is_one in zip(pairwise(_levels(cuts)), single, strict=True):
        if any(until[index] - begun[index] > size for index in cuts):
            yield from _step(ranges, begun, here)
            begun = here
        if is_one and any(until[index] - here[index] > size for index in cuts):
            yield from _pieces(ranges, here, until, size)
            begun = until
    yield from _step(ranges, begun, {index: offsets[-1] for index, offsets in cuts.items()})


def _levels(cuts: Cuts) -> Iterator[dict[int, int]]:
    return (dict(zip(cuts, offsets, strict=True)) for offsets in zip(*cuts.values(), strict=True))


def _step(ranges: Mapping[int, Range], start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[dict[int, Range]]:
    some = {index: Range(*ranges[index].key, start[index], end[index]) for index in start if start[index] < end[index]}
    if some:
        yield some


def _pieces(
    ranges: Mapping[int, Range], start: Mapping[int, int], end: Mapping[int, int], size: int
) -> Iterator[dict[int, Range]]:
    """The pieces of one level: one partition after the other."""
    for index in sorted(start):
        for at in range(start[index], end[index], size):
            yield from _step(ranges, {index: at}, {index: min(at + size, end[index])})


def _maxima(times: DataFrame, size: int) -> list[tuple[int, int, int]]:
    from pyspark.sql import functions as F

    block = F.floor(F.col("offset") / size).alias("block")
    rows = times.groupBy("partition", block).agg(F.max("time"))
    return [(partition, number, latest) for partition, number, latest in rows.collect()]


def _cuts(times: DataFrame, ranges: Mapping[int, Range], found: Sequence[int]) -> Cuts:
    """A level begins at the first record of its time or a later one."""
    from pyspark.sql import functions as F

    firsts = in_arrow.mapped(times, _Firsts(found), "partition int, level int, offset bigint")
    rows = firsts.groupBy("partition", "level").agg(F.min("offset")).collect()
    first = {(partition, level): offset for partition, level, offset in rows}
    cuts = {}
    for index, whole in sorted(ranges.items()):
        offsets = [first.get((index, level), whole.end) for level in range(len(found), 0, -1)]
        cuts[index] = [whole.start, *reversed(list(accumulate(offsets, min))), whole.end]
    return cuts


class _Firsts:
    """In a task: for each of Spark's batches the first offset by partition and number of bounds reached."""

    def __init__(self, found: Sequence[int]) -> None:
        self._bounds = found

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            levels = np.searchsorted(np.array(self._bounds), batch.column("time").to_numpy(), side="right")
            table = pa.table([batch.column("partition"), pa.array(levels, pa.int32()), batch.column("offset")], _NAMES)
            firsts = table.group_by(_NAMES[:2]).aggregate([("offset", "min")])
            yield from firsts.select([*_NAMES[:2], "offset_min"]).rename_columns(_NAMES).to_batches()


_NAMES = ["partition", "level", "offset"]
