"""The reader of a batch query: Spark plans it on the driver and reads in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.pipeline.reading import bounded, pushdown, tasks
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.read_warnings import warn
from odradek.pipeline.types import Range
from odradek.pipeline.wire.brokers import Brokers

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class BatchReader(DataSourceReader):
    """The reader of one query; planning fixes its start and end offsets."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._bounds = pushdown.Bounds()
        warn(options)

    def partitions(self) -> list[InputPartition]:
        """The pieces to read: all records written before planning, and none written later."""
        with Brokers(self._options.kafka) as brokers, brokers.steady():
            found = bounded.planned(brokers, self._options, self._bounds.cut, partial(self._late_enough, brokers))
        return [InputPartition(split) for split in found]

    def _late_enough(self, brokers: Brokers, ranges: Sequence[Range]) -> list[Range]:
        """Look up the times after the ends are known: then every record in the ranges exists already."""
        if not (time := self._bounds.since):
            return list(ranges)
        return pushdown.since(ranges, brokers.offsets_by_time({each.key: time for each in ranges}))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a piece; None stands for a query without pieces."""
        split = partition.value if partition is not None else None
        return tasks.read(self._options, split) if split is not None else iter(())


class FilteredReader(BatchReader):
    """The reader with odradek.pushdown. It is a separate class because Spark refuses one with this method unless
    spark.sql.python.filterPushdown.enabled is set.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Return the filters that Spark still has to evaluate: all of them."""
        self._bounds = pushdown.bounds(filters)
        return filters
