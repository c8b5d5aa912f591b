"""Checks the records of a produced batch whose header and checksum are valid.

A consumer that meets unreadable records does not get past them; an operator must skip them by hand. So a leader checks
them, as Kafka's does: every length, offset delta and record count, inside compressed batches too, and the header's
largest timestamp, which retention goes by. Only a positive result counts: workers.produce.convert decodes a batch that
fails the check, and repairs it or answers with Kafka's error.

Layout    : one scratch buffer for decompressed records; its untouched pages take no memory.
Owner     : the worker.
Crash rule: none, nothing outlives the call.
"""

from __future__ import annotations

import mmap

from odradek.protocol.batch import COMPRESSION, HEADER_SIZE, NO_TIMESTAMP
from odradek.protocol.records import codecs
from odradek.protocol.records.columns import Data, are_sound
from odradek.protocol.records.errors import RecordError

ROOM = 8 << 20  # for decompressed records; larger batches take the slow path
_INTO_SCRATCH = (codecs.LZ4, codecs.ZSTD)  # the decoders of the other codecs allocate their own memory


class RecordCheck:
    """Checks batches whose headers and checksums were checked before."""

    def __init__(self) -> None:
        self._scratch = mmap.mmap(-1, ROOM)
        self._room = memoryview(self._scratch)

    def is_sound(
        self, buffer: memoryview, at: int, size: int, attributes: int, count: int, base: int, latest: int
    ) -> bool:
        """Whether the batch buffer[at:at+size] with these `attributes` holds `count` valid records, whose timestamps
        are relative to `base` and have the maximum `latest`.
        """
        if base < NO_TIMESTAMP:
            return False
        if not attributes & COMPRESSION:
            data: Data = buffer.obj  # type: ignore[assignment]  # no slice: a memoryview has no find()
            return are_sound(data, at + HEADER_SIZE, at + size, count, latest - base)
        # A few bytes may decompress to more records than a worker has time for.
        packed = buffer[at + HEADER_SIZE : at + size]
        return count <= codecs.WORKER_RECORDS and self._is_sound_inside(
            attributes & COMPRESSION, packed, count, latest - base
        )

    def _is_sound_inside(self, codec: int, packed: memoryview, count: int, span: int) -> bool:
        try:
            if codec in _INTO_SCRATCH:
                size = codecs.decompress_into(codec, packed, self._room)
                return are_sound(self._scratch, 0, size, count, span)
            body = codecs.decompress(codec, packed, ROOM)
        except RecordError:
            return False
        return are_sound(body, 0, len(body), count, span)
