"""Batches that a compaction cannot read although their checksums are right: they stay as they are.

A worker refuses such batches, but former releases accepted them, and so do topics with trusted producers. They must not
stop the compaction of their partition for ever.
"""

from __future__ import annotations

import logging

from odradek.storage.segment.scan import Batch

log = logging.getLogger(__name__)


class UnreadableBatches:
    """Unreadable batches of one round over `directory`. `logged` outlives the round: base offsets already logged."""

    def __init__(self, directory: str, logged: set[int]) -> None:
        self._directory = directory
        self._logged = logged
        self.bases: set[int] = set()

    def record(self, batch: Batch, why: object) -> None:
        """Record the batch; logs a WARNING the first time."""
        self.bases.add(batch.base_offset)
        if batch.base_offset not in self._logged:
            self._logged.add(batch.base_offset)
            log.warning("%s: the cleaner keeps the batch at offset %d: %s", self._directory, batch.base_offset, why)
