"""Renewals: the holder of a partition's lock reports progress during long work, so that it does not count as stuck.

Recoveries, truncations, repairs and rolls process megabytes under the lock, or a million producers. After some MiB read
or copied, after some thousand producers, and at each fsync, rename and whole file read (storage.files.durable) they
clear the `contended` note (ipc.slots), and the waiting process then writes it again: the supervisor only kills a holder
that makes no progress for `odradek.lock.stall.ms`, for example because its disk hangs.

`Partition.locked` and other callers with long work under a lock use `of` to name the slot whose lock this thread holds.
An append, which takes some microseconds, does so only to roll its segment or to grow the producer table.

Owner: the thread that holds the lock; the code that calls `renew` knows nothing of partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

_thread = threading.local()
_MANY = 4096  # producers: some tens of milliseconds


class Renewable(Protocol):
    """A slot (ipc.slots)."""

    def renew(self) -> None:
        """Report that the holder of its lock makes progress."""


@contextmanager
def of(slot: Renewable) -> Iterator[None]:
    """Within the block, each `renew` of this thread is for the lock of `slot`, which it holds."""
    former = getattr(_thread, "slot", None)
    _thread.slot = slot
    try:
        yield
    finally:
        _thread.slot = former


def renew() -> None:
    """Report progress; no effect outside `of`."""
    slot: Renewable | None = getattr(_thread, "slot", None)
    if slot is not None:
        slot.renew()


def along(items: Iterable[T]) -> Iterator[T]:
    """`items`, with a renewal every _MANY items: there may be a million."""
    for number, item in enumerate(items):
        if not number % _MANY:
            renew()
        yield item
