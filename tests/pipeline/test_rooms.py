"""Memory that is used again: never while something refers to it, and not for longer than anything needs it."""

from __future__ import annotations

import multiprocessing
import os
import weakref
from multiprocessing.synchronize import Barrier

import numpy as np
import pyarrow as pa
import pytest

from odradek.pipeline.decoding import arrow, rooms
from odradek.pipeline.decoding.gather import Copies
from odradek.pipeline.decoding.rooms import FREE, ROOM, Rooms

from .batches import NOW, Log, whole


def test_a_room_is_taken_again_when_the_last_array_over_it_is_gone() -> None:
    some = Rooms()
    first = some.take(100)
    address, part = first.ctypes.data, pa.py_buffer(first[50:60])
    del first
    assert some.take(100).ctypes.data != address
    del part
    assert some.take(1).ctypes.data == address


def test_rooms_that_are_held_are_different_ones() -> None:
    some = Rooms()
    held = [some.take(ROOM) for _ in range(2 * FREE)]
    for number, room in enumerate(held):
        room[:] = number
    assert [set(room[::4096].tolist()) for room in held] == [{number} for number in range(2 * FREE)]
    assert len(held[0]) == ROOM


def test_a_forked_process_does_not_change_what_its_parent_holds() -> None:
    """Both may use the same room: the child drops the column and takes the room for other bytes."""
    some = Rooms()
    held = [some.take(ROOM)]
    held[0][:] = 1
    child = os.fork()
    if not child:
        held.clear()
        some.take(ROOM)[:] = 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert held[0].min() == held[0].max() == 1


def test_forked_readers_have_memory_of_their_own() -> None:
    """Each takes the room that is free at the fork, and looks at its record batch when all have read."""
    some, fork = rooms.shared(), multiprocessing.get_context("fork")
    some.take(1)
    together = fork.Barrier(2)
    readers = [fork.Process(target=read_and_compare, args=(number, together)) for number in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [reader.exitcode for reader in readers] == [0, 0]


def read_and_compare(number: int, together: Barrier) -> None:
    log, values = Log(), [bytes([number]) * 1000] * 6000
    log.batch([(NOW, None, value, ()) for value in values])
    found = list(arrow.batches(log.chunks((), True), whole(log)))
    together.wait(60)
    assert [value for batch in found for value in batch["value"].to_pylist()] == values


def test_no_more_rooms_than_the_bound_stay_free() -> None:
    some = Rooms()
    held = [some.take(ROOM) for _ in range(FREE + 3)]
    addresses = {room.ctypes.data for room in held}
    held.clear()
    again = [some.take(ROOM) for _ in range(FREE)]
    assert {room.ctypes.data for room in again} <= addresses
    assert not some._free


def test_more_than_a_room_is_memory_of_that_size() -> None:
    assert len(Rooms().take(ROOM + 1)) == ROOM + 1


def test_memory_that_the_kernel_refuses_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an OSError, after which a reader of files would go on over the wire. 2 ** 62 bytes are no address space."""
    monkeypatch.setattr(rooms, "ROOM", 1 << 62)
    with pytest.raises(MemoryError, match="Cannot allocate memory"):
        Rooms().take(1)


def test_readers_share_rooms_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_latest", None)  # those of other tests may still be in use
    first = rooms.shared()
    assert rooms.shared() is first
    room, gone = first.take(1), weakref.ref(first)
    del first
    assert rooms.shared() is gone()  # what is in use keeps them
    del room
    assert gone() is None


def test_a_column_keeps_at_most_twice_its_bytes() -> None:
    some = Rooms()
    for size in (ROOM // 64 - 1, ROOM // 64 + 1):
        column = Copies(some.take)
        column.add(np.ones(32 * size, np.uint8), np.arange(0, 32 * size, size), np.full(32, size))
        array = column.array()
        assert (len(some._free) == 1) == (size < ROOM // 64)
        assert array[31].as_buffer().size == size


def test_a_column_grows_beyond_the_memory_that_it_got() -> None:
    """Strings of many sizes first, in memory of exactly their size; then more of them."""
    column, data = Copies(Rooms().take), np.arange(256, dtype=np.uint8)
    at, sizes = np.arange(0, 200, 20), np.array([3, -1, 0, 5, 7, 11, 2, 13, 1, 17])
    expected = []
    for _ in range(3):
        column.add(data, at, sizes)
        pairs = zip(at.tolist(), sizes.tolist(), strict=True)
        expected += [None if size < 0 else bytes(range(start, start + size)) for start, size in pairs]
    found = column.array()
    found.validate(full=True)
    assert found.to_pylist() == expected
    assert column.array().to_pylist() == []
