"""Memory for columns that is used again when nothing refers to it any more.

Fresh memory costs as much as the bytes that are copied into it: the kernel clears each page at its first touch.

Layout    : a room is ROOM bytes of anonymous memory, in huge pages where the kernel has them.
Owner     : the arrays and Arrow buffers that refer to a room; with the last of them it is free. The free rooms belong
            to the readers and the rooms in use together: when none of these is left, all memory is returned.
Writers   : who takes a room, until it hands out views of it.
Lock      : none: `list.append` and `list.pop` are atomic, so that any thread may let go of a room at any moment.
Forks     : the memory is private, so a room in use at a fork is one in each process, with the same bytes at first.
Bound     : at most FREE rooms are free.
"""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import numpy as np

ROOM = 8 << 20
FREE = 16
_HUGE = 2 << 20  # bytes of a huge page, at a multiple of which it begins


class Rooms:
    """Rooms for any number of readers, which may be in several threads."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, size: int) -> np.ndarray:
        """Memory for `size` bytes without meaning: a room, or fresh memory where a room is too small; MemoryError."""
        if size > ROOM:
            return np.empty(size, np.uint8)
        try:
            room = self._free.pop()
        except IndexError:
            room = _fresh()
        return np.asarray(_Lease(self, room))

    def give_back(self, room: np.ndarray) -> None:
        """Keep the room for the next one who takes one, unless there are enough."""
        if len(self._free) < FREE:
            self._free.append(room)


class _Lease:
    """What arrays over a room keep alive; without any it gives the room back."""

    def __init__(self, rooms: Rooms, room: np.ndarray) -> None:
        self.__array_interface__ = room.__array_interface__
        self._rooms, self._room = rooms, room

    def __del__(self) -> None:
        self._rooms.give_back(self._room)


def _fresh() -> np.ndarray:
    try:
        memory = mmap.mmap(-1, ROOM + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # to a reader of files an OSError says that those cannot be read
        raise MemoryError(f"no memory for {ROOM} bytes of columns: {error}") from error
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    flat = np.frombuffer(memory, np.uint8)
    first = -flat.ctypes.data % _HUGE
    return flat[first : first + ROOM]


_latest: weakref.ref[Rooms] | None = None


def shared() -> Rooms:
    """The rooms that other readers and the results of former ones use now, or new ones.

    Two threads that ask at the same time may get different ones, which does no harm.
    """
    global _latest
    rooms = _latest() if _latest is not None else None
    if rooms is None:
        rooms = Rooms()
        _latest = weakref.ref(rooms)
    return rooms
