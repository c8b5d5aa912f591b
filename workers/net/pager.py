"""Records that are not in the page cache must not stall the loop: sending them would wait for the disk.

The pager probes slices far behind the log's end with preadv(RWF_NOWAIT), one byte every STRIDE. Where a page is missing
it asks the kernel to read the whole slice ahead (posix_fadvise, which does not wait), and probes the slice again every
millisecond until it is cached. A file system without RWF_NOWAIT (tmpfs) counts as cached. After TIMEOUT_S the slice is
sent as it is: under memory pressure pages may be evicted as fast as they are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.storage.files.openfile import FileSlice

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection

STRIDE = 1 << 18  # the kernel reads ahead and evicts in large pieces; each probe costs three microseconds
TIMEOUT_S = 5.0
_BYTE = bytearray(1)


class Pager:
    """A worker's answers that wait for the disk."""

    def __init__(
        self, send: Callable[[Connection, list[Any]], None], again: Callable[[Callable[[], bool], Connection], None]
    ) -> None:  # fmt: skip
        """`send` sends an answer; `again(work, connection)` calls `work` every millisecond until it returns True."""
        self._send = send
        self._again = again
        self.waits = 0

    def answer(self, connection: Connection, pieces: list[Any]) -> None:
        """Answer once the far slices among `pieces` are in the page cache: mostly at once."""
        cold = [piece for piece in pieces if isinstance(piece, FileSlice) and piece.far and not cached(piece)]
        if not cold:
            self._send(connection, pieces)
            return
        self.waits += 1
        for piece in cold:
            os.posix_fadvise(piece.file.fd, piece.position, piece.size, os.POSIX_FADV_WILLNEED)
        until = time.monotonic() + TIMEOUT_S

        def again() -> bool:
            if time.monotonic() < until and not all(cached(piece) for piece in cold):
                return connection.closed  # done once the client is gone
            self._send(connection, pieces)
            return True

        self._again(again, connection)


def cached(piece: FileSlice) -> bool:
    """Whether one byte in every STRIDE of the slice can be read without waiting."""
    probe, into, flags = os.preadv, (_BYTE,), os.RWF_NOWAIT
    fd, end = piece.file.fd, piece.position + piece.size
    try:
        for position in range(piece.position, end, STRIDE):
            probe(fd, into, position, flags)
        probe(fd, into, end - 1, flags)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
