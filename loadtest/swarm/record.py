"""A user's value: who sent it, its number, when, and the producer's guarantee.

i 5f3a91c0d2e4 42 1732212345678901234 ...........
|      |       |           |              +- padding to the wanted size
|      |       |           +- nanoseconds since 1970, of the machine that sent it
|      |       +- the user's own count, from 0
|      +- the user, unique over all locust processes
+- i: from an idempotent producer, which must not duplicate or reorder; p: from a plain one, which may on a retry
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from typing import NamedTuple

IDEMPOTENT = b"i"
PLAIN = b"p"


class Stamp(NamedTuple):
    """The head of a value."""

    kind: bytes
    user: int
    number: int
    sent_ns: int


def make(kind: bytes, user: int, number: int, size: int) -> bytes:
    """A value of `size` bytes (more, when its head needs more), sent now."""
    return (b"%s %x %d %d " % (kind, user, number, time.time_ns())).ljust(size, b".")


def parse(value: bytes | None) -> Stamp | None:
    """The head of a value from `make`; None for any other value."""
    try:
        kind, user, number, sent_ns, _ = (value or b"").split(b" ", 4)
        return Stamp(kind, int(user, 16), int(number), int(sent_ns))
    except ValueError:
        return None


def digest(value: bytes) -> int:
    """A 64-bit hash of the whole value."""
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")


class Names:
    """Numbers for users: 40 random bits of this process, then a count, so that no two processes collide."""

    def __init__(self) -> None:
        self._pid = 0
        self._count = itertools.count()
        self._base = 0

    def next(self) -> int:
        """A user's number. Locust forks its workers after loading this, so each draws its bits at first use."""
        if self._pid != os.getpid():
            self._pid, self._base = os.getpid(), int.from_bytes(os.urandom(5), "big") << 23
        return self._base + next(self._count)
