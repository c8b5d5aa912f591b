"""Find where a stream's first batch began when Spark does it again: the checkpoint has only its end.

Numeric offsets mean the same the second time, and so does what the group committed when the stream began. `earliest`
means the same where it is offset 0, and a time where it is after the start of the log; `latest` never does. A batch
that begins elsewhere the second time would omit records, or Spark would cut it into other tasks than those of which
some have written already.
"""

from __future__ import annotations

import logging

from odradek.pipeline.errors import DataLoss
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.offsets import Exactly, Since
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import EARLIEST, Partition
from odradek.pipeline.wire.brokers import Brokers

log = logging.getLogger(__name__)
Offsets = dict[Partition, int]


def began(brokers: Brokers, options: ReadOptions, end: Offsets) -> Offsets:
    """The start of a batch that ends at `end`. DataLoss where it is unknown, unless failOnDataLoss is false."""
    if isinstance(options.start, Exactly):  # partitions that were added since are not in that batch
        return offsets.resolve(options.start.of(end), list(end), brokers, options.committed, "starting")
    if options.commit_group and (noted := brokers.committed(options.commit_group, end)):
        return noted
    keys = [key for key in options.subscription.existing(brokers.topics(end)) if key in end]
    start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
    if unsure := _unsure(brokers, options, start, end):
        _tell(options, unsure)
    return start


def _unsure(brokers: Brokers, options: ReadOptions, start: Offsets, end: Offsets) -> list[Partition]:
    """The partitions where the batch may have begun elsewhere."""
    moving = {key for key, offset in start.items() if offset}
    if isinstance(options.start, Since) and moving:
        first = brokers.offsets(moving, EARLIEST)
        moving = {key for key in moving if not first[key] < start[key] < end[key]}
    return sorted(moving)


def _tell(options: ReadOptions, unsure: list[Partition]) -> None:
    text = (
        f"the stream repeats its first batch, and the start offsets of {offsets.names(unsure)} are unknown: give "
        "startingOffsets as JSON, or use odradek.commit.group, which records them"
    )
    if options.fail_on_data_loss:
        raise DataLoss(f"{text} (with failOnDataLoss=false it starts at the present startingOffsets)")
    log.warning("%s; it begins where startingOffsets is now (failOnDataLoss=false)", text)
