"""Whether the records under a sound header and a right checksum are sound too: what a producer may get stored.

A consumer that meets records it cannot read does not get past them, and there is no way but to skip them by hand. So a
leader looks at them, as Kafka's does: every length, offset delta and number of records, under compression too, and that
the header's largest timestamp, by which segments are kept, is true. Only a yes counts: what gets a no is opened by
workers.produce.convert, which mends it or has Kafka's error for it.

Layout    : one scratch buffer for what is unpacked; pages that nothing was unpacked to take no memory.
Owner     : the worker.
Crash rule: none, nothing outlives the call.
"""

from __future__ import annotations

import mmap

from odradek.protocol.batch import COMPRESSION, HEADER_SIZE, NO_TIMESTAMP
from odradek.protocol.records import codecs
from odradek.protocol.records.columns import are_sound
from odradek.protocol.records.errors import RecordError

ROOM = 8 << 20  # for unpacked records; larger batches are opened
_INTO_SCRATCH = (codecs.LZ4, codecs.ZSTD)  # the others' decoders have memory of their own


class RecordCheck:
    """Looks into batches whose headers and checksums were looked at before."""

    def __init__(self) -> None:
        self._scratch = mmap.mmap(-1, ROOM)
        self._room = memoryview(self._scratch)

    def is_sound(
        self, buffer: memoryview, at: int, size: int, attributes: int, count: int, base: int, latest: int
    ) -> bool:
        """Whether the batch buffer[at:at+size] with these `attributes` holds `count` sound records, with timestamps
        that count from `base` and of which `latest` is the largest.
        """
        if base < NO_TIMESTAMP:
            return False
        if not attributes & COMPRESSION:
            # Not of the view, which has no find.
            return are_sound(buffer.obj, at + HEADER_SIZE, at + size, count, latest - base)  # type: ignore[arg-type]
        # A few bytes may unpack to more records than a worker has the time for.
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
