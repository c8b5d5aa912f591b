"""The quota table: the rate of each client quota in use, one for all workers.

Layout    : region `quotas`: word 0 the words of a row; from HEAD on ROWS rows:
              words 0, 1 the digest of the quota's kind, user and client id; 0, 0 for a free row
              words 2..  the samples of its rate (security.quotas.rates.Rate)
Owner     : the supervisor creates the region. A row belongs to the quota of its digest until it is idle: its samples
            are all so old that they no longer count. Then any other quota may take it.
Writers   : the process that holds the row's byte of quotas.lock; it changes the digest only while it holds byte ROWS
            too.
Lock      : quotas.lock in the run directory, byte = row, and byte ROWS to take a row for a quota without one. Nobody
            waits for a lock: what a worker cannot add now it adds with its next request.
Crash rule: a process that dies before it has added a request's bytes leaves them out. The samples are valid after each
            single store (Rate). A half written digest matches no quota: the row is soon idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from odradek.ipc.locks import ByteLocks
from odradek.ipc.region import Region
from odradek.protocol import digests

ROWS = 1024
HEAD = 8
_DIGEST = 2  # words
_KIND = "quotas"
_TRIES = 3
Digest = tuple[int, int]


def create(prefix: str, incarnation: int, size: int) -> None:
    """Make the table for rates of `size` words. SharedMemoryFull."""
    region = Region.create(f"{prefix}quotas", bytes_for(size), _KIND, incarnation)
    region.words[0] = size + _DIGEST
    region.close()


def bytes_for(size: int) -> int:
    """The size of the table."""
    return (HEAD + ROWS * (size + _DIGEST)) * 8


def digest_of(*names: str) -> Digest:
    """Two words that stand for a quota; never 0, 0."""
    encoded = b"".join(len(name).to_bytes(4) + name.encode("utf-8", "surrogatepass") for name in names)
    digest = digests.blake2b(encoded, 16)
    return int.from_bytes(digest[:8], signed=True) or 1, int.from_bytes(digest[8:], signed=True)


class QuotaTable:
    """This process's mapping of the table, and its locks."""

    def __init__(self, prefix: str, run_dir: Path) -> None:
        """Map the table of a running broker. RegionError."""
        self._region = Region.attach(f"{prefix}quotas", _KIND)
        self._words = self._region.words
        self._width = self._words[0]
        self._locks = ByteLocks(run_dir / "quotas.lock")
        self.unlock = self._locks.unlock

    def samples(self, row: int) -> memoryview:
        """The words of the row's rate."""
        at = HEAD + row * self._width
        return self._words[at + _DIGEST : at + self._width]

    def lock(self, row: int) -> bool:
        """Take a row's lock, which is held for a few microseconds at a time; False when a stopped process has it."""
        for _ in range(_TRIES):
            if self._locks.try_lock(row):
                return True
            os.sched_yield()
        return False

    def belongs_to(self, row: int, digest: Digest) -> bool:
        """Whether the row is that quota's. Caller holds its lock, or looks again once it does."""
        at = HEAD + row * self._width
        return self._words[at] == digest[0] and self._words[at + 1] == digest[1]

    def find(self, digest: Digest) -> int | None:
        """The quota's row."""
        column = self._words[HEAD :: self._width].tolist()
        found = [row for row, word in enumerate(column) if word == digest[0] and self.belongs_to(row, digest)]
        return found[0] if found else None

    def claim(self, digest: Digest, idle: Callable[[memoryview], bool]) -> int | None:
        """The quota's row: the one it has, or a free one, or an idle one; None when there is none now.

        `idle(samples)`: whether a row may be taken from its quota. The taker empties its samples.
        """
        if not self.lock(ROWS):
            return None
        try:
            found = self.find(digest)
            return self._take(digest, idle) if found is None else found
        finally:
            self.unlock(ROWS)

    def _take(self, digest: Digest, idle: Callable[[memoryview], bool]) -> int | None:
        for row in range(ROWS):
            if idle(self.samples(row)) and self.lock(row):
                try:
                    if idle(self.samples(row)):  # still: another worker may have added to it meanwhile
                        self._enter(row, digest)
                        return row
                finally:
                    self.unlock(row)
        return None

    def _enter(self, row: int, digest: Digest) -> None:
        at, words = HEAD + row * self._width, self._words
        words[at] = words[at + 1] = 0  # first: no reader may take the samples for those of the former quota
        for word in range(at + _DIGEST, at + self._width):
            words[word] = 0
        words[at], words[at + 1] = digest
