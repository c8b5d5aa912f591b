"""Records for clients that know only message formats 0 and 1: read, converted, and sent from memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.openfile import FileSlice
    from odradek.storage.partition import Partition

log = logging.getLogger(__name__)


def for_version(partition: Partition, piece: FileSlice, offset: int, version: int) -> bytes | None:
    """The slice as a message set for Fetch `version` below 4; None when such a client cannot read it (zstd)."""
    from odradek.protocol.records import convert
    from odradek.protocol.records.errors import RecordError

    try:
        return convert.down(piece.read(), 1 if version >= 2 else 0, offset)
    except RecordError as error:
        log.warning("%r: offset %d cannot be shown to an old client: %s", partition, offset, error)
        return None
