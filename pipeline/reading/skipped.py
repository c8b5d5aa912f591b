"""Count the offsets of a range without records for a reader, by cause, from batch headers alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from odradek.pipeline.decoding.selection import Batches, Selection
from odradek.pipeline.types import Chunk, Range
from odradek.protocol.batch import CONTROL


class Skipped(NamedTuple):
    """Numbers of offsets: of control records, of records of aborted transactions, and, in batches that keep others, of
    records that compaction removed: in the first and the last batch also those outside of the range.
    """

    control: int = 0
    aborted: int = 0
    removed: int = 0


def count(chunks: Iterable[Chunk], range: Range) -> Skipped:
    """Count in the range's chunks; chunks read with read_uncommitted list no aborted transactions."""
    counting = _Counting(range)
    for chunk in chunks:
        for _ in counting.of(chunk):
            pass
    return Skipped(counting.control, counting.aborted, counting.removed)


class _Counting(Selection):
    """Counts what a selection skips."""

    def __init__(self, range: Range) -> None:
        super().__init__(range, check_crcs=False)
        self.control = self.aborted = self.removed = 0

    def _shown(self, batches: Batches) -> Batches:
        self._check_order(batches)
        heads = batches.heads
        first = np.maximum(heads["base_offset"], self._range.start)
        after = np.minimum(batches.last_offsets() + 1, self._range.end)
        sizes = np.minimum(np.maximum(after - first, 0), heads["num_records"])
        control = heads["attributes"] & CONTROL != 0
        self.control += int(sizes[control].sum())
        self.aborted += int(sizes[self._aborted.within(batches)].sum())
        self.removed += int((heads["last_offset_delta"] + 1 - heads["num_records"]).sum())
        return batches.only(slice(0, 0))
