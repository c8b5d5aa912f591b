"""Batches that a compaction cannot read though their checksums are right: they stay as they are.

A worker refuses such batches, but former releases took them, and it does where producers are trusted. They must not
stop the compaction of their partition for ever.
"""

from __future__ import annotations

import logging

from odradek.storage.segment.scan import Batch

log = logging.getLogger(__name__)


class UnreadableBatches:
    """Those of one round over the log in `directory`. `told` outlives the round: base offsets already logged."""

    def __init__(self, directory: str, told: set[int]) -> None:
        self._directory = directory
        self._told = told
        self.bases: set[int] = set()

    def note(self, batch: Batch, why: object) -> None:
        """Remember it; a WARNING at the first time."""
        self.bases.add(batch.base_offset)
        if batch.base_offset not in self._told:
            self._told.add(batch.base_offset)
            log.warning("%s: the cleaner keeps the batch at offset %d: %s", self._directory, batch.base_offset, why)
