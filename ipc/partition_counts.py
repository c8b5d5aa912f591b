"""What clients do with each partition: the counts of one process, as Kafka's BrokerTopicMetrics.

Layout    : regions `counts-<role>-<k>` for the slots of chunk k (ipc.slots): ROW words each for ELSEWHERE, REPLICATION
            and the CHUNK slots:
              word 0 incarnation of the partition that has the row   8 zero
              words 1..7 COUNTS since the region exists, of all partitions that have had the row; they never go down
              words 9..15 what these words were when the partition got the row: its own counts are the differences
            ELSEWHERE has no incarnation and counts for the broker alone: requests for partitions that are not on this
            broker. REPLICATION counts what followers get. Only chunk 0 uses these two rows.
Owner     : the process of that role, a worker or the coordinator; it creates a region when it first uses a partition of
            the chunk. The supervisor unlinks all at the stop.
Writers   : that process alone, a word for each count. The exporter reads them (broker.exporter.traffic).
Lock      : none; single words. A reader drops rows whose incarnation is not the one that the metadata has.
Crash rule: regions outlive their process, and the next one of that role continues the counts: a death loses at most
            those of the append or answer under way. A row that changes hands has incarnation 0 meanwhile: no partition
            has it then, and the next process that claims it starts over.
"""

from __future__ import annotations

import logging
from typing import Protocol
from weakref import WeakValueDictionary

from odradek.ipc import memory_order
from odradek.ipc.region import Region, RegionError
from odradek.ipc.slots import CHUNK, Slot

log = logging.getLogger(__name__)

COUNTS = (
    "bytes_in",  # bytes of batches appended for producers, as stored
    "messages_in",
    "bytes_out",  # bytes of records in answers to consumers
    "produce_requests",  # for Produce, one for each partition of a request; so for Fetch
    "fetch_requests",
    "failed_produce_requests",  # those that Kafka counts as failed: not errors that a client has to expect
    "failed_fetch_requests",
)
(
    INCARNATION,
    BYTES_IN,
    MESSAGES_IN,
    BYTES_OUT,
    PRODUCE_REQUESTS,
    FETCH_REQUESTS,
    FAILED_PRODUCE_REQUESTS,
    FAILED_FETCH_REQUESTS,
) = range(1 + len(COUNTS))
ROW = 16
BEFORE = ROW // 2  # from a count to the word with what it was before the partition got the row
ELSEWHERE, REPLICATION = range(2)
HEAD = 2  # rows before that of the first slot
SIZE = (HEAD + CHUNK) * ROW * 8  # bytes
_KIND = "counts"

NOWHERE = memoryview(bytearray(ROW * 8)).cast("q")
"""The row of partitions in processes that do not count."""


class Counted(Protocol):
    """A partition. `counts` is the row that its process counts in."""

    slot: Slot
    incarnation: int
    counts: memoryview


class PartitionCounts:
    """The rows of this process. `elsewhere` and `replication` are two of them."""

    def __init__(self, prefix: str, role: int, incarnation: int) -> None:
        """`incarnation`: the broker's."""
        self._prefix = prefix
        self._role = role
        self._incarnation = incarnation
        self._chunks: dict[int, memoryview] = {}
        self._claimed: WeakValueDictionary[int, Counted] = WeakValueDictionary()
        self.elsewhere = self._row(0, ELSEWHERE)
        self.replication = self._row(0, REPLICATION)

    def claim(self, partition: Counted) -> None:
        """Give `partition` the row of its slot. The former partition of the slot counts for the broker alone then."""
        number = partition.slot.number
        row = self._row(number // CHUNK, HEAD + number % CHUNK)
        if row[INCARNATION] > partition.incarnation:
            partition.counts = self.elsewhere
            return
        if row[INCARNATION] != partition.incarnation:
            _hand_over(row, partition.incarnation)
        former = self._claimed.get(number)
        if former is not None and former.incarnation != partition.incarnation:
            former.counts = self.elsewhere
        self._claimed[number] = partition
        partition.counts = row

    def _row(self, chunk: int, number: int) -> memoryview:
        words = self._chunks.get(chunk)
        if words is None:
            words = self._chunks[chunk] = self._open(chunk)
        return words[number * ROW : (number + 1) * ROW]

    def _open(self, chunk: int) -> memoryview:
        """The words of a region; or other memory, without readers: a full /dev/shm must not refuse requests."""
        name = _name(self._prefix, self._role, chunk)
        try:
            return self._attached(name) or Region.create(name, SIZE, _KIND, self._incarnation).words
        except RegionError as error:
            log.warning("%s; some requests of this process are not in the metrics by topic", error)
            return memoryview(bytearray(SIZE)).cast("q")

    def _attached(self, name: str) -> memoryview | None:
        try:
            region = Region.attach(name, _KIND)
        except RegionError:
            return None
        return region.words if region.incarnation == self._incarnation else None


def _hand_over(row: memoryview, incarnation: int) -> None:
    """Give a row to another partition. Readers must not see the incarnation with the bases of another."""
    row[INCARNATION] = 0
    memory_order.ordered()
    row[BEFORE + 1 :] = row[1:BEFORE]
    memory_order.ordered()
    row[INCARNATION] = incarnation


def read(prefix: str, role: int, chunk: int) -> memoryview:
    """The words of a region, for a reader. RegionError: there is none."""
    return Region.attach(_name(prefix, role, chunk), _KIND).words


def _name(prefix: str, role: int, chunk: int) -> str:
    return f"{prefix}counts-{role}-{chunk}"
