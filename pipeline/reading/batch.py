"""The reader of a batch query: Spark plans it on the driver and reads in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.pipeline.reading import losses, offsets, planning, pushdown, splits, tasks
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.read_warnings import tell, warn
from odradek.pipeline.types import EARLIEST, LATEST, Range
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
        options = self._options
        with Brokers(options.kafka) as brokers, brokers.steady():
            keys = options.subscription.existing(brokers.topics())
            start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
            end = offsets.resolve(options.end, keys, brokers, options.committed, "ending")
            first = brokers.offsets(keys, EARLIEST)
            last = brokers.offsets(keys, LATEST, options.committed)
            ranges, lost = losses.within(self._bounds.cut(planning.batch(start, end)), first, last)
            tell(lost, options)
            return splits.of_batch(brokers, self._late_enough(brokers, ranges), first, last, options)

    def _late_enough(self, brokers: Brokers, ranges: list[Range]) -> list[Range]:
        """Look up the times after the ends are known: then every record in the ranges exists already."""
        if not (time := self._bounds.since):
            return ranges
        return pushdown.since(ranges, brokers.offsets_by_time({each.key: time for each in ranges}))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a piece; None stands for a query without pieces."""
        return tasks.read(self._options, partition) if isinstance(partition, splits.Split) else iter(())


class FilteredReader(BatchReader):
    """The reader with odradek.pushdown. It is a separate class because Spark refuses one with this method unless
    spark.sql.python.filterPushdown.enabled is set.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Return the filters that Spark still has to evaluate: all of them."""
        self._bounds = pushdown.bounds(filters)
        return filters
