"""Whoever holds a partition's lock for long says that it goes on, so that it is not taken for stuck (ipc.slots).

Recoveries, truncations, repairs and rolls go through megabytes under the lock, or through a million producers. With
some MiB that are read or copied, with some thousand producers, with each fsync, rename and file read whole
(storage.files.durable) they take away the note of who waits, who then notes its wait anew: only a holder that gets
nowhere for `odradek.lock.stall.ms` is killed, as one whose disk hangs.

`Partition.locked` and whoever else may take long under a lock say with `of` whose lock this thread holds. An append,
which takes some microseconds, does so where it rolls its segment or lets the producer table grow.

Owner: the thread that holds the lock; what it reads knows nothing of partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot

T = TypeVar("T")

_thread = threading.local()
_MANY = 4096  # producers: some tens of milliseconds


@contextmanager
def of(slot: Slot) -> Iterator[None]:
    """Within, each `renew` of this thread is for the lock of `slot`, which it holds."""
    former = getattr(_thread, "slot", None)
    _thread.slot = slot
    try:
        yield
    finally:
        _thread.slot = former


def renew() -> None:
    """Some more is done; nothing where no lock is held for long."""
    slot: Slot | None = getattr(_thread, "slot", None)
    if slot is not None:
        slot.renew()


def along(items: Iterable[T]) -> Iterator[T]:
    """`items`, with a renewal now and then: there may be a million."""
    for number, item in enumerate(items):
        if not number % _MANY:
            renew()
        yield item
