"""Plan a query with a start and an end: what is read, cut into splits. It needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.pipeline.reading import losses, offsets, planning, splits
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.read_warnings import tell
from odradek.pipeline.types import EARLIEST, LATEST, Range
from odradek.pipeline.wire.brokers import Brokers

Narrow = Callable[[Sequence[Range]], list[Range]]


def planned(brokers: Brokers, options: ReadOptions, cut: Narrow = list, again: Narrow = list) -> list[splits.Split]:
    """The splits of all records that exist now; none that is written later is in them. Call it while `steady`.

    `cut` narrows the wanted ranges, before losses are looked for in them; `again` what is left of them, when their ends
    are known to exist. OptionError, UnknownTopic, DataLoss.
    """
    keys = options.subscription.existing(brokers.topics())
    start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
    end = offsets.resolve(options.end, keys, brokers, options.committed, "ending")
    first = brokers.offsets(keys, EARLIEST)
    last = brokers.offsets(keys, LATEST, options.committed)
    ranges, lost = losses.within(cut(planning.batch(start, end)), first, last)
    tell(lost, options)
    return splits.of_batch(brokers, again(ranges), first, last, options)
