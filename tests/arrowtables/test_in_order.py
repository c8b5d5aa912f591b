"""Iterators on threads: order, errors, the bound on memory, and the end of the threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.arrowtables.in_order import in_order

from ..harness.process import wait_until


class Piece(NamedTuple):
    """An item: which iterator, which of its items, its size."""

    of: int
    at: int
    nbytes: int


def makes(sizes: list[list[int]]) -> list[Callable[[None], Iterator[Piece]]]:
    def of(number: int) -> Iterator[Piece]:
        for at, size in enumerate(sizes[number]):
            yield Piece(number, at, size)

    return [lambda _, number=number: of(number) for number in range(len(sizes))]  # type: ignore[misc]


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "odradek-arrow"]


@given(
    st.lists(st.lists(st.integers(1, 30), max_size=6), max_size=8),
    st.integers(1, 5),
    st.integers(1, 60),
)
def test_items_come_in_order_whatever_the_threads_and_the_memory(
    sizes: list[list[int]], threads: int, memory: int
) -> None:
    found = [(one.of, one.at) for one in in_order(makes(sizes), threads, memory, nullcontext)]
    assert found == [(number, at) for number, some in enumerate(sizes) for at in range(len(some))]


def test_waiting_items_stay_within_the_memory() -> None:
    """Ten iterators of ten items on four threads, with room for five: none of them makes more than it may keep.

    Besides the five, each thread may hold one item, the first iterator one more, and the consumer has one.
    """
    made, taken, lock = 0, 0, threading.Lock()

    def of(number: int) -> Iterator[Piece]:
        nonlocal made
        for at in range(10):
            with lock:
                made += 1
            yield Piece(number, at, 10)

    most = 0
    for _ in in_order([lambda _, number=number: of(number) for number in range(10)], 4, 50, nullcontext):  # type: ignore[misc]
        taken += 1
        if taken == 1:
            wait_until(lambda: made >= 5, what="threads read ahead")
        with lock:
            most = max(most, made - taken)
    assert taken == 100
    assert 5 <= most <= 5 + 4 + 1


def test_threads_read_ahead_while_the_consumer_is_busy() -> None:
    begun: set[int] = set()

    def of(number: int) -> Iterator[Piece]:
        begun.add(number)
        yield Piece(number, 0, 1)

    items = in_order([lambda _, number=number: of(number) for number in range(3)], 2, 100, nullcontext)  # type: ignore[misc]
    next(items)
    wait_until(lambda: begun == {0, 1, 2}, what="the other iterators run")
    items.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_error_is_raised_behind_the_items_before_it(threads: int) -> None:
    def broken(_: None) -> Iterator[Piece]:
        yield Piece(1, 0, 1)
        raise ValueError("torn")

    found = []
    of: list[Callable[[None], Iterator[Piece]]] = [*makes([[1, 1]]), broken, *makes([[1]])]
    with pytest.raises(ValueError, match="torn"):
        for item in in_order(of, threads, 1, nullcontext):
            found.append((item.of, item.at))
    assert found == [(0, 0), (0, 1), (1, 0)]


def test_threads_end_when_the_consumer_stops_early() -> None:
    items = in_order(makes([[10] * 50 for _ in range(6)]), 4, 20, nullcontext)
    next(items)
    assert running()
    items.close()
    wait_until(lambda: not running(), what="the threads end")


@pytest.mark.parametrize("threads", [1, 3])
def test_each_thread_has_its_own_and_leaves_it(threads: int) -> None:
    open_ones, used = set[int](), set[int]()

    @contextmanager
    def each() -> Iterator[int]:
        mine = threading.get_ident()
        open_ones.add(mine)
        yield mine
        open_ones.remove(mine)

    def of(mine: int, number: int) -> Iterator[Piece]:
        assert mine == threading.get_ident() and mine in open_ones
        used.add(mine)
        yield Piece(number, 0, 1)

    makes = [lambda mine, number=number: of(mine, number) for number in range(9)]
    assert [one.of for one in in_order(makes, threads, 100, each)] == list(range(9))
    wait_until(lambda: not open_ones)
    assert 1 <= len(used) <= threads


def test_an_error_of_what_a_thread_begins_with_is_raised() -> None:
    @contextmanager
    def each() -> Iterator[None]:
        raise ValueError("nothing to begin with")
        yield

    with pytest.raises(ValueError, match="nothing to begin with"):
        list(in_order(makes([[1], [1]]), 2, 100, each))


ENDING = """
import sys, time
from contextlib import contextmanager
from odradek.arrowtables.in_order import in_order

class Piece:
    nbytes = 1

@contextmanager
def each():
    yield None
    time.sleep(0.3)
    print("left", flush=True)

items = in_order([lambda _: [Piece()] * 9] * 2, 2, 1, each)
next(items)
if sys.argv[1] == "all":
    list(items)
"""


@pytest.mark.live
@pytest.mark.parametrize("read", ["all", "one"])
def test_program_ends_after_the_threads(read: str) -> None:
    """Else one may drop Arrow's memory while the interpreter ends, which aborts the process."""
    done = subprocess.run([sys.executable, "-c", ENDING, read], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\nleft\n", "")
