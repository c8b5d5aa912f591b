"""Key → latest offset over the dirty part of a log: it decides what compaction keeps, as Kafka's SkimpyOffsetMap.

Layout    : three columns of anonymous memory, 24 bytes an entry: the two words of the key's hash
            (storage.compaction.key_hashes) and the offset, shifted by one bit that says whether the record is a
            tombstone. An entry without an offset is empty. A key's entry is at the first place of its probe sequence
            that is empty or has its hash.
End       : at least one place is always empty, as `put` leaves one. A key's probes are scattered at first, and may
            repeat a place; from _SCATTERED on they are linear. So every search ends after _SCATTERED plus the number of
            places at the latest, whatever the hash is.
Owner     : one pass of compaction in one process. Filled first; then frozen, which sorts the offsets in place.
Memory    : log.cleaner.dedupe.buffer.size at most, and no more than the offsets of the dirty part could fill.
"""

from __future__ import annotations

import mmap

import numpy as np

from odradek.storage.compaction.key_hashes import Hashes

ENTRY_BYTES = 24
_LEAST = 2
_LARGE = 8 << 20
_SPARSE = 64
_SCATTERED = 1000  # 99 of 100 places may be taken: then one search in 20 000 gets there
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_USED = np.uint64(1)


class OffsetMap:
    """Room for `buffer_bytes` of entries, used up to `load_factor`; at most `most` keys can come."""

    def __init__(self, buffer_bytes: int, load_factor: float = 0.9, most: int = 1 << 62) -> None:
        load_factor = min(max(load_factor, 0.01), 0.99)
        slots = min(buffer_bytes // ENTRY_BYTES, int(most / load_factor) + _LEAST, 1 << 31)
        self._slots = max(slots, _LEAST)
        self._room = max(1, int(self._slots * load_factor))
        memory = mmap.mmap(-1, self._slots * ENTRY_BYTES)
        if self._slots * ENTRY_BYTES >= _LARGE:  # random access: otherwise each lookup would also cost a TLB miss
            memory.madvise(mmap.MADV_HUGEPAGE)
        columns = np.frombuffer(memory, np.uint64).reshape(3, self._slots)
        self._first, self._second = columns[0], columns[1]
        self._entries = columns[2].view(np.int64)
        self._size = 0
        self._offsets = np.empty(0, np.int64)  # rising, once frozen
        self.latest = -1  # the last offset up to which every key is in the map

    def __len__(self) -> int:
        return self._size

    @property
    def full(self) -> bool:
        """Whether the map takes no more keys."""
        return self._size >= self._room

    def put(self, hashes: Hashes, offsets: np.ndarray, tombstones: np.ndarray) -> int:
        """Add keys written at `offsets`, which rise and are above all earlier ones; returns how many fit."""
        count = done = len(offsets)
        entries = (offsets + 1) << 1 | tombstones
        done = 0
        while done < count and not self.full:
            upto = min(count, done + self._slots - 1 - self._size, done + max(1, self._room))
            self._put(hashes.only(slice(done, upto)), entries[done:upto])
            done = upto
        return done

    def _put(self, hashes: Hashes, entries: np.ndarray) -> None:
        """Add entries; there is room for them and one more. If several go to one place together, the last one stays."""
        first, second = hashes.first, hashes.second | _USED
        mixed, probe = first, 0
        while entries.size:
            at = self._places(mixed, probe)
            free = np.flatnonzero(self._second[at] == 0)
            place, mine = at[free], entries[free]
            self._first[place], self._second[place], self._entries[place] = first[free], second[free], mine
            self._size += int(np.count_nonzero(self._entries[place] == mine))
            same = (self._second[at] == second) & (self._first[at] == first)
            self._entries[at[same]] = entries[same]
            other = np.flatnonzero(~same)
            first, second, entries, mixed = first[other], second[other], entries[other], _next(mixed[other], probe)
            probe += 1

    def _places(self, mixed: np.ndarray, probe: int) -> np.ndarray:
        """The places of probe number `probe` (from 0); `mixed` is the result of `_next` for the hashes."""
        at = ((mixed >> _HALF) * np.uint64(self._slots) >> _HALF).view(np.int64)
        return at if probe < _SCATTERED else (at + probe) % self._slots

    def freeze(self) -> None:
        """End the filling: from now on there are only lookups."""
        self._entries.sort()
        self._offsets = self._entries[self._slots - self._size :]

    def has(self, hashes: Hashes) -> np.ndarray:
        """Which of the keys are in the map."""
        found = np.zeros(len(hashes.first), bool)
        first, second, mixed, probe = hashes.first, hashes.second | _USED, hashes.first, 0
        places = np.arange(len(found))
        while places.size:
            at = self._places(mixed, probe)
            there = self._second[at]
            self._settle(found, places, at, there == second, first)
            on = np.flatnonzero((there != 0) & ~found[places])
            first, second, places, mixed = first[on], second[on], places[on], _next(mixed[on], probe)
            probe += 1
        return found

    def _settle(
        self, found: np.ndarray, places: np.ndarray, at: np.ndarray, likely: np.ndarray, first: np.ndarray
    ) -> None:
        """Compare the other half of the hash, in another column, only for `likely` matches of the first."""
        some = np.flatnonzero(likely)
        found[places[some]] = self._first[at[some]] == first[some]

    def between(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The begin and end places of those in [first, last] among the latest records of all keys, by offset."""
        return np.searchsorted(self._offsets, (first + 1) << 1), np.searchsorted(self._offsets, (last + 2) << 1)

    def tombstones(self, begin: int, end: int) -> np.ndarray:
        """Which of the latest records from place `begin` to `end` are tombstones."""
        return self._offsets[begin:end] & 1

    def latest_among(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `offsets`, rising, are of the latest record of a key, and which of a latest that is a tombstone."""
        begin, end = self.between(offsets[:1], offsets[-1:])
        entries = self._offsets[int(begin[0]) : int(end[0])]
        first, span = int(offsets[0]), int(offsets[-1]) - int(offsets[0]) + 1
        there = (entries >> 1) - 1
        if span > _SPARSE * len(offsets):
            return np.isin(offsets, there), np.isin(offsets, there[entries & 1 != 0])
        marks = np.zeros(span, np.uint8)
        marks[there - first] = 1 + (entries & 1)
        found = marks[offsets - first]
        return found > 0, found > 1


def _next(mixed: np.ndarray, probe: int) -> np.ndarray:
    """The mixed hashes for the probe after number `probe`: scattered, then constant, and `_places` adds to them."""
    return (mixed ^ mixed >> np.uint64(31)) * _MIX if probe < _SCATTERED else mixed
