"""Key → latest offset over the dirty part of a log: what compaction keeps and drops by, as Kafka's SkimpyOffsetMap.

Layout    : three columns of anonymous memory, 24 bytes an entry: the two words of the key's hash
            (storage.compaction.key_hashes) and the offset, shifted by one bit that says whether the record is a
            tombstone. An entry without an offset is empty. A key's entry is at the first place of its own sequence of
            places that is empty or has its hash.
End       : one place at least is always empty, as `put` leaves one. A key's places are scattered at first, and might
            come back to one already seen; from _SCATTERED on each is the one behind the last. So every search ends
            after _SCATTERED and the number of places at the latest, whatever the hash is.
Owner     : one pass of compaction in one process. Filled first; then frozen, which sorts the offsets where they are.
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
_SCATTERED = 1000  # of 100 places 99 may be taken: then one search in 20 000 gets there
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_USED = np.uint64(1)


class OffsetMap:
    """Room for `buffer_bytes` of entries, of which `load_factor` are used; `most` keys are all that can come."""

    def __init__(self, buffer_bytes: int, load_factor: float = 0.9, most: int = 1 << 62) -> None:
        load_factor = min(max(load_factor, 0.01), 0.99)
        slots = min(buffer_bytes // ENTRY_BYTES, int(most / load_factor) + _LEAST, 1 << 31)
        self._slots = max(slots, _LEAST)
        self._room = max(1, int(self._slots * load_factor))
        memory = mmap.mmap(-1, self._slots * ENTRY_BYTES)
        if self._slots * ENTRY_BYTES >= _LARGE:  # looked into here and there: a look would cost a miss in the TLB too
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
        """Whether nothing more should be put in."""
        return self._size >= self._room

    def put(self, hashes: Hashes, offsets: np.ndarray, tombstones: np.ndarray) -> int:
        """Note keys written at `offsets`, which rise, above all before; returns how many found room."""
        count = done = len(offsets)
        entries = (offsets + 1) << 1 | tombstones
        done = 0
        while done < count and not self.full:
            upto = min(count, done + self._slots - 1 - self._size, done + max(1, self._room))
            self._put(hashes.only(slice(done, upto)), entries[done:upto])
            done = upto
        return done

    def _put(self, hashes: Hashes, entries: np.ndarray) -> None:
        """There is room for all of them, and one more. Of entries that go to one place together the last one stays."""
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
        """Where probe number `probe`, from 0 on, looks; `mixed` is what `_next` made of the hashes."""
        at = ((mixed >> _HALF) * np.uint64(self._slots) >> _HALF).view(np.int64)
        return at if probe < _SCATTERED else (at + probe) % self._slots

    def freeze(self) -> None:
        """From now on it is asked, and takes nothing more."""
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
        """Half of the hash is looked at everywhere, the other half, in another place, only where that one is right."""
        some = np.flatnonzero(likely)
        found[places[some]] = self._first[at[some]] == first[some]

    def between(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where among the latest records of all keys, by offset, those in [first, last] begin and end."""
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
    """For the probe behind number `probe`: scattered, then always the same, to which `_places` adds."""
    return (mixed ^ mixed >> np.uint64(31)) * _MIX if probe < _SCATTERED else mixed
