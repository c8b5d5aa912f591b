"""Small slices of files are sent with what is around them.

Each slice is a system call of its own, and what follows it a packet of its own: sendfile cannot say that more is to
come. A reader is then woken twice, for the records and for the few bytes that end a flexible answer. Copying a few KiB
costs less than either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.openfile import FileSlice

SMALL = 16 << 10  # bytes of a slice that is read
MOST = 64 << 10  # bytes that are read for one answer: it waits in memory if its reader is slow


def gathered(pieces: list[bytes | FileSlice]) -> list[bytes | FileSlice]:
    """The same bytes in fewer pieces. OSError, EOFError: a slice cannot be read."""
    found: list[bytes | FileSlice] = []
    run: list[bytes] = []
    left = MOST
    for piece in pieces:
        if isinstance(piece, bytes):
            run.append(piece)
        elif piece.size <= SMALL and piece.size <= left:
            left -= piece.size
            run.append(piece.read())
        else:
            found += [b"".join(run), piece] if run else [piece]
            run = []
    return [*found, b"".join(run)] if run else found
