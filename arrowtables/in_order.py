"""Several iterators on threads, and all their items in one order, with a bound on memory.

Layout    : for each iterator that runs, a queue of items that wait for the consumer.
Owner     : the generator; its threads end with it, also when it is closed early or dropped. It waits for them, END_S
            at most, and so does the end of the program: a thread that drops Arrow's memory while the interpreter ends
            aborts the process, as C++ destructors cannot end as Python's threads do then.
Lock      : one condition guards all fields of `_Shelf`.
Bound     : an item waits only while all that wait have at most `memory` bytes. The iterator whose items are due may
            have one item waiting whatever the others have, or the others could block it for ever. Besides these, each
            thread has at most one item that waits for room.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

END_S = 2.0


class Sized(Protocol):
    """An item with a size in bytes."""

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""


Item = TypeVar("Item", bound=Sized)
Mine = TypeVar("Mine")
Make = Callable[[Mine], Iterable[Item]]
Each = Callable[[], AbstractContextManager[Mine]]


def in_order(
    makes: Sequence[Make[Mine, Item]], threads: int, memory: int, each: Each[Mine]
) -> Generator[Item, None, None]:
    """All items of the first iterator, then all of the second, …; `threads` of them run at a time.

    Each thread makes its iterators from what `each` gives it, one after the other.
    An iterator's error is raised after its items. With one thread, or one iterator, all runs in the caller's thread.
    """
    if threads == 1 or len(makes) < 2:
        with each() as mine:
            for make in makes:
                yield from make(mine)
        return
    shelf = _Shelf(makes, memory, each)
    try:
        shelf.start(min(threads, len(makes)))
        for number in range(len(makes)):
            yield from shelf.items(number)
    finally:
        shelf.stop()


class _Shelf(Generic[Mine, Item]):
    def __init__(self, makes: Sequence[Make[Mine, Item]], memory: int, each: Each[Mine]) -> None:
        self._makes, self._memory, self._each = makes, memory, each
        self._changed = threading.Condition()
        self._claimed = 0  # iterators that a thread has or had
        self._due = 0  # the iterator whose items the consumer takes
        self._held = 0  # bytes of waiting items
        self._waiting: dict[int, deque[Item]] = {}
        self._ended: dict[int, BaseException | None] = {}
        self._stopped = False
        self._threads: list[threading.Thread] = []

    # -- threads

    def start(self, count: int) -> None:
        """Daemons: a thread that waits for a broker must not hold up the end of the program for long."""
        _running.add(self)
        for _ in range(count):
            thread = threading.Thread(target=self.work, name="odradek-arrow", daemon=True)
            thread.start()
            self._threads.append(thread)

    def work(self) -> None:
        """Run iterators until none is left."""
        with ExitStack() as stack:
            mine: list[Mine] = []
            while (number := self._claim()) is not None:
                error: BaseException | None = None
                try:
                    mine = mine or [stack.enter_context(self._each())]
                    for item in self._makes[number](mine[0]):
                        if not self._put(number, item):
                            return
                except BaseException as raised:
                    error = raised
                self._end(number, error)

    def _claim(self) -> int | None:
        with self._changed:
            if self._stopped or self._claimed == len(self._makes):
                return None
            self._waiting[self._claimed] = deque()
            self._claimed += 1
            return self._claimed - 1

    def _put(self, number: int, item: Item) -> bool:
        """Wait for room; False when the consumer has gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(number, item.nbytes))
            if not self._stopped:
                self._waiting[number].append(item)
                self._held += item.nbytes
                self._changed.notify_all()
            return not self._stopped

    def _has_room(self, number: int, size: int) -> bool:
        return self._held + size <= self._memory or (number == self._due and not self._waiting[number])

    def _end(self, number: int, error: BaseException | None) -> None:
        with self._changed:
            self._ended[number] = error
            self._changed.notify_all()

    # -- the consumer

    def items(self, number: int) -> Iterator[Item]:
        """All items of an iterator; raises its error behind them."""
        while (item := self._take(number)) is not None:
            yield item

    def _take(self, number: int) -> Item | None:
        """The next item; None when the iterator has ended."""
        with self._changed:
            if self._due != number:
                self._due = number
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting.get(number) or number in self._ended)
            if not self._waiting[number]:
                self._forget(number)
                return None
            item = self._waiting[number].popleft()
            self._held -= item.nbytes
            self._changed.notify_all()
            return item

    def _forget(self, number: int) -> None:
        """Forget an iterator; raise its error, if it has one."""
        del self._waiting[number]
        if (error := self._ended.pop(number)) is not None:
            raise error

    def stop(self) -> None:
        """Drop what waits; the threads end at their next item, for which this waits END_S at most."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
        until = time.monotonic() + END_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


_running: WeakSet[_Shelf[Any, Any]] = WeakSet()


@atexit.register
def _stop_all() -> None:
    for shelf in list(_running):
        shelf.stop()
