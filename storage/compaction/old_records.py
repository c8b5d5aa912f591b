"""The records of a message of magic 0 or 1, or of a compressed set of them, for compaction."""

from __future__ import annotations

from itertools import pairwise

from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import message_sets
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError
from odradek.storage.segment.bulk_records import LIMIT
from odradek.storage.segment.scan import Batch


def old_records(batch: Batch, payload: bytes) -> list[Record]:
    """The records in offset order. RecordError as message_sets.iterate, and INVALID_RECORD if offsets do not rise."""
    rows = list(message_sets.iterate(payload, LIMIT))
    if rows[-1][0] != batch.last_offset or any(row[0] >= after[0] for row, after in pairwise(rows)):
        raise RecordError(INVALID_RECORD, "its offsets do not rise up to its last")
    return rows
