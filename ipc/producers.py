"""Producer state of one partition: the last batches of each idempotent producer, shared by all workers.

Layout    : region `producers-<slot>-<incarnation>-<generation>`; word 0 capacity, 1 used, 2 the number of producers at
            which the next generation is due; from word 32 on entries of 32 words in an open-addressed hash table
            (linear probing, never more than 2/3 full, entries are never removed):
              0 ~producer id (0: empty)  1 epoch  2 last timestamp ms  3 coordinator epoch
              4 ~first offset of the open transaction (0: none)  5 batches appended so far, ever
              6 offset of the last marker, -1 before the first (KIP-890: see storage.log.transactions.may_open; growth
                keeps it; snapshots do not have it: after a start or a truncation it may be one that is too high)
              8 + 4*(n % 5) .. the n-th batch: first sequence << 32 | last sequence, base offset, last offset, timestamp
Owner     : the partition: the slot's `pstate_gen` names the current generation (0: none yet).
Writers   : the process that holds the partition's lock.
Lock      : the partition's.
Crash rule: a batch's words are stored before the count that makes it visible, an entry's before its producer id.
            Applying a batch again (repair replays [pstate_leo, leo)) changes nothing: its last offset is known.
            The next process that grows the table replaces a region of the next generation that was not published.
Expiry and growth copy the live entries to the next generation, word by word, under the lock. A partition keeps
`odradek.producers.max` of them: at that number, the next generation takes over the newer half, by the offset of the
last batch or marker (clients set the timestamps), and all with open transactions. Each entry keeps the last five
batches, as Kafka does: they let the broker answer a retry of up to five requests in flight with its first offset
(KIP-98).
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from odradek.ipc import renewal
from odradek.ipc.region import Region, RegionError, SharedMemoryFull, unlink

_KIND = "producers"
_ENTRY = 32
_FIRST = 15
_TOGETHER = 1 << 14  # places that one step under the lock reads: some milliseconds
KEPT = 5

PID, EPOCH, TIMESTAMP, COORDINATOR_EPOCH, TXN_FIRST, COUNT, MARKED = range(7)
_RING = 8


Row = tuple[int, int, int, int, int, int, int, int]
"""One producer update of an append: id, epoch, first and last sequence, base and last offset, timestamp ms, kind."""


Entry = tuple[int, int, int, int]
"""A batch in the ring, as its words: sequences (first << 32 | last), base and last offset, timestamp."""


class ProducerBatch(NamedTuple):
    """One appended batch of a producer; sequences are 31-bit and wrap."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """A producer's state, oldest batch first. `marked`: the offset of its last marker, or one that is not below it."""

    producer_id: int
    epoch: int
    timestamp: int
    coordinator_epoch: int
    txn_first: int
    batches: tuple[ProducerBatch, ...]
    marked: int = -1

    @property
    def last_offset(self) -> int:
        """As `ProducerTable.last_offset`."""
        return max(self.marked, self.batches[-1].last_offset if self.batches else -1)


class ProducerTable:
    """The table of one generation in this process's mapping. For every method the caller holds the partition lock."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.words = region.words
        self.capacity = region.words[0]
        self._places: dict[int, int] = {}  # entries do not move within a generation

    @staticmethod
    def name(prefix: str, slot: int, incarnation: int, generation: int) -> str:
        return f"{prefix}producers-{slot}-{incarnation}-{generation}"

    @classmethod
    def create(cls, name: str, incarnation: int, at_least: int = 0, most: int = 1 << 40) -> ProducerTable:
        """A new table with room for `at_least` producers and some spare; for more than `most` only if it must."""
        capacity = _FIRST
        while capacity * 2 < at_least * 3:
            capacity = capacity * 4 + 3
        region = Region.create(name, (32 + capacity * _ENTRY) * 8, _KIND, incarnation)
        region.words[0] = capacity
        region.words[2] = min(capacity * 2 // 3, max(most, at_least))
        return cls(region)

    @classmethod
    def attach(cls, name: str) -> ProducerTable:
        """Map an existing table; RegionError when it is gone."""
        return cls(Region.attach(name, _KIND))

    def find(self, producer_id: int) -> int:
        """The index in `words` at which `producer_id`'s entry begins, or -1."""
        at = self._places.get(producer_id)
        if at is None:
            at = self._probe(producer_id)
            if at >= 0:
                self._places[producer_id] = at
        return at

    def _probe(self, producer_id: int) -> int:
        words, key = self.words, ~producer_id
        for at in self._chain(producer_id):
            found = words[at]
            if found == key:
                return at
            if not found:
                return -1
        return -1

    def _chain(self, producer_id: int) -> Iterator[int]:
        """Every place once, in `producer_id`'s probe order: a search ends in a full table too."""
        first, end = 32 + producer_id % self.capacity * _ENTRY, 32 + self.capacity * _ENTRY
        return chain(range(first, end, _ENTRY), range(32, first, _ENTRY))

    def _free(self, producer_id: int) -> int:
        for at in self._chain(producer_id):
            if not self.words[at]:
                return at
        raise SharedMemoryFull(errno.ENOSPC, f"the producer table of {self.capacity} places is full")

    def has_room(self, count: int) -> bool:
        """Whether `count` more producers fit without a larger table."""
        return self.words[1] + count <= self.words[2]

    @property
    def used(self) -> int:
        """The number of producers in the table."""
        return self.words[1]

    def places(self) -> list[int]:
        """The index in `words` of each entry."""
        found: list[int] = []
        for first, ids in self._column(PID):
            found += [first + _ENTRY * index for index, producer_id in enumerate(ids) if producer_id]
        return found

    def _column(self, word: int) -> Iterator[tuple[int, list[int]]]:
        """That word of all places, some thousand at a time, each with the index of its first place."""
        for first in range(32, 32 + self.capacity * _ENTRY, _TOGETHER * _ENTRY):
            renewal.renew()
            yield first, self.words[first + word : first + _TOGETHER * _ENTRY : _ENTRY].tolist()

    def newest(self, count: int, staying: Collection[int]) -> list[int]:
        """The places of the `count` producers that wrote last, of those with an open transaction, and of the ids in
        `staying`."""
        words = self.words
        offsets = {at: self.last_offset(at) for at in renewal.along(self.places())}
        by_offset = sorted(offsets, key=offsets.__getitem__, reverse=True)  # the longest step: 0.5 s for a million
        older = renewal.along(by_offset[count:])
        return by_offset[:count] + [at for at in older if words[at + TXN_FIRST] or ~words[at] in staying]

    def last_offset(self, at: int) -> int:
        """The last offset of the producer's newest batch or marker here; -1 without one. A fenced one has no batch."""
        words, count = self.words, self.words[at + COUNT]
        return max(words[at + MARKED], words[at + _RING + 4 * ((count - 1) % KEPT) + 2] if count else -1)

    def copy_from(self, other: ProducerTable, places: Iterable[int]) -> None:
        """Copy the entries at `places` of `other`; they must be new to this table, and it must have room."""
        words, theirs = self.words, other.words
        for at in renewal.along(places):
            to = self._free(~theirs[at])
            words[to : to + _ENTRY] = theirs[at : at + _ENTRY]
            words[1] += 1

    def last_batches(self) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
        """The snapshot fields of each producer: id, epoch, last sequence, last offset, offset delta, timestamp,
        coordinator epoch, first offset of the open transaction; -1 for a missing value."""
        words = self.words
        for at in renewal.along(self.places()):
            pid, epoch, timestamp, coordinator, begun, count = words[at : at + 6].tolist()
            last, offset, delta = -1, -1, 0
            if count:
                ring = at + _RING + 4 * ((count - 1) % KEPT)
                span, first, offset, _ = words[ring : ring + 4].tolist()
                last, delta = span & 0xFFFFFFFF, offset - first
            yield ~pid, epoch, last, offset, delta, timestamp, coordinator, ~begun

    def insert(self, producer_id: int, epoch: int) -> int:
        """Add an empty entry. A full table raises SharedMemoryFull: storage.log.producer_capacity prevents that."""
        words, at = self.words, self._free(producer_id)
        words[at + EPOCH], words[at + TXN_FIRST], words[at + COUNT] = epoch, 0, 0
        words[at + TIMESTAMP], words[at + COORDINATOR_EPOCH], words[at + MARKED] = -1, -1, -1
        words[1] += 1  # first: a death here must not leave an uncounted entry
        words[at] = ~producer_id
        return at

    def append(self, at: int, row: Row) -> None:
        """Record a batch of the producer at `at`; a new epoch drops the batches of the former one."""
        words = self.words
        if words[at + EPOCH] != row[1]:
            words[at + COUNT], words[at + EPOCH] = 0, row[1]
        count = words[at + COUNT]
        if count and words[at + _RING + 4 * ((count - 1) % KEPT) + 2] >= row[5]:
            return  # replayed by a repair
        self._store(at, ((row[2] << 32 | row[3], row[4], row[5], row[6]),))

    def append_known(self, producer_id: int, epoch: int, entries: Sequence[Entry]) -> bool:
        """`append` batches of one producer; False, without a change, unless its place is known and the epoch equal."""
        at = self._places.get(producer_id, -1)
        if at < 0 or self.words[at + EPOCH] != epoch:
            return False
        self._store(at, entries if len(entries) <= KEPT else entries[-KEPT:])
        return True

    def _store(self, at: int, entries: Sequence[Entry]) -> None:
        words, count = self.words, self.words[at + COUNT]
        for entry in entries:
            ring = at + _RING + 4 * (count % KEPT)
            words[ring : ring + 4] = array("q", entry)
            count += 1
        words[at + TIMESTAMP] = entry[3]
        words[at + COUNT] = count

    def begin(self, at: int, offset: int) -> None:
        """Record a transactional batch at `offset`: the first one opens the producer's transaction."""
        if not self.words[at + TXN_FIRST]:
            self.words[at + TXN_FIRST] = ~offset

    def end(self, at: int, epoch: int, coordinator_epoch: int, timestamp: int, offset: int) -> None:
        """End the producer's transaction with the marker at `offset`."""
        self.enter(at, epoch, timestamp)
        self.words[at + MARKED] = offset
        self.words[at + COORDINATOR_EPOCH] = coordinator_epoch
        self.words[at + TXN_FIRST] = 0

    def enter(self, at: int, epoch: int, timestamp: int) -> None:
        """Record a write without sequences in the producer's name; a new epoch drops the former epoch's batches."""
        words = self.words
        if words[at + EPOCH] != epoch:
            words[at + COUNT], words[at + EPOCH] = 0, epoch
        words[at + TIMESTAMP] = timestamp

    def first_unstable(self, without: int = -1) -> int:
        """First offset of the oldest open transaction, -1 when none is open; `without` this producer id's.

        5 ms with 100,000 producers: a marker calls it only when the oldest transaction is its own.
        """
        own = self.find(without) if without >= 0 else -1
        oldest = []
        for first, begun in self._column(TXN_FIRST):
            if first <= own < first + _TOGETHER * _ENTRY:
                begun[(own - first) // _ENTRY] = 0
            oldest.append(max(filter(None, begun), default=~-1))
        return ~max(filter(None, oldest), default=~-1)

    def txn_first(self, at: int) -> int:
        """First offset of the open transaction of the producer at `at`, -1 without one."""
        return ~self.words[at + TXN_FIRST]

    def last_sequence(self, at: int) -> int:
        """The last sequence appended in the entry's epoch, -1 when none."""
        count = self.words[at + COUNT]
        return self.words[at + _RING + 4 * ((count - 1) % KEPT)] & 0xFFFFFFFF if count else -1

    def duplicate(self, at: int, first: int, last: int) -> tuple[int, int] | None:
        """Base offset and timestamp of the kept batch with exactly these sequences, None when there is none."""
        words, key = self.words, first << 32 | last
        for n in range(min(words[at + COUNT], KEPT)):
            ring = at + _RING + 4 * n
            if words[ring] == key:
                return words[ring + 1], words[ring + 3]
        return None

    def entry(self, at: int) -> ProducerEntry:
        """The whole entry at `at`."""
        words = self.words
        count = words[at + COUNT]
        batches = []
        for n in range(max(0, count - KEPT), count):
            ring = at + _RING + 4 * (n % KEPT)
            span = words[ring]
            batches.append(ProducerBatch(span >> 32, span & 0xFFFFFFFF, *words[ring + 1 : ring + 4]))
        head = words[at : at + 5]
        return ProducerEntry(~head[0], head[1], head[2], head[3], ~head[4], tuple(batches), words[at + MARKED])

    def copied(self) -> ProducerTable:
        """A private copy of the table, readable without the lock: 10 ms with 100,000 producers."""
        copy = ProducerTable.__new__(ProducerTable)
        copy.words, copy.capacity, copy._places = memoryview(bytearray(self.words.nbytes)).cast("q"), self.capacity, {}
        for first in range(0, len(self.words), _TOGETHER * _ENTRY):
            renewal.renew()
            copy.words[first : first + _TOGETHER * _ENTRY] = self.words[first : first + _TOGETHER * _ENTRY]
        return copy

    def entries(self) -> Iterator[ProducerEntry]:
        """The entry of every producer."""
        for at in renewal.along(self.places()):
            yield self.entry(at)

    def load(self, entry: ProducerEntry) -> None:
        """Insert `entry` as it is (from a snapshot or a former generation)."""
        at = self.insert(entry.producer_id, entry.epoch)
        for batch in entry.batches:
            self.append(at, (entry.producer_id, entry.epoch, *batch, 0))
        self.words[at + TIMESTAMP] = entry.timestamp
        self.words[at + COORDINATOR_EPOCH] = entry.coordinator_epoch
        self.words[at + TXN_FIRST] = ~entry.txn_first
        self.words[at + MARKED] = entry.marked

    def close(self) -> None:
        """Unmap; the region stays."""
        self.words.release()
        self._region.close()


__all__ = ["KEPT", "Entry", "ProducerBatch", "ProducerEntry", "ProducerTable", "RegionError", "Row", "unlink"]
