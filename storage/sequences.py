"""The rules of the idempotent producer (KIP-98, KIP-360) over a partition's shared producer table.

Everything here is called with the partition's lock held. A coalesced append checks its batches one after the other
against the table *and* against what it has already let in (`staged`), and applies all of it once the log end is
published: a death in between is mended by replaying the log from `pstate_leo` on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.ipc import region
from odradek.ipc.producers import EPOCH, ProducerBatch, ProducerEntry, ProducerTable
from odradek.protocol import errors
from odradek.protocol.batch import next_sequence
from odradek.storage import producers as producers_file

# What a staged row is. A marker's has its coordinator epoch as first sequence; OWN is a transactional batch that the
# coordinator wrote for a producer (offsets of a transaction): it opens the transaction and has no sequences.
PLAIN, TRANSACTIONAL, MARKER, OWN = range(4)


class Producers:
    """One partition's producer state as this process sees it."""

    def __init__(self, prefix: str, slot: int, incarnation: int) -> None:
        self._prefix, self._slot, self._incarnation = prefix, slot, incarnation
        self._table: ProducerTable | None = None
        self._generation = 0

    def table(self, generation: int) -> ProducerTable | None:
        """The table of `generation`, None for 0 (nobody idempotent wrote yet)."""
        if generation != self._generation:
            self._table = ProducerTable.attach(self._name(generation)) if generation else None
            self._generation = generation
        return self._table

    def _name(self, generation: int) -> str:
        return ProducerTable.name(self._prefix, self._slot, self._incarnation, generation)

    def replace(self, entries: Iterable[ProducerEntry], generation: int) -> int:
        """Make a table of just `entries` and return its generation, to be published by the caller."""
        kept = list(entries)
        table = ProducerTable.create(self._name(generation + 1), self._incarnation, len(kept) + 1)
        for entry in kept:
            table.load(entry)
        self._table, self._generation = table, generation + 1
        return generation + 1

    def retire(self, generation: int) -> None:
        """Unlink a generation that a *published* newer one has replaced; dying before only wastes its memory."""
        if generation:
            region.unlink(self._name(generation))

    def apply(self, staged: Staged, generation: int) -> int:
        """Note the staged batches; returns the table's generation, a new one if it had to grow."""
        table = self.table(generation)
        for producer_id, epoch, batch, kind in staged.batches:
            if table is None:
                generation = self.replace((), generation)
                table = self._table
            assert table is not None
            at = table.find(producer_id)
            if at < 0:
                if table.full:
                    generation = self.replace(list(table.entries()), generation)
                    table = self._table
                    assert table is not None
                at = table.insert(producer_id, epoch)
            if kind == MARKER:
                table.end(at, epoch, batch.first_sequence, batch.timestamp)
                continue
            if kind == OWN:
                table.enter(at, epoch, batch.timestamp)
            else:
                table.append(at, epoch, batch)
            if kind != PLAIN:
                table.begin(at, batch.base_offset)
        return generation

    def forget(self) -> None:
        """Drop the mapping, e.g. when the partition is gone."""
        self._table, self._generation = None, 0


class Staged:
    """What one coalesced append has let in so far."""

    __slots__ = ("_last", "_table", "batches")

    def __init__(self, table: ProducerTable | None) -> None:
        self._table = table
        self._last: dict[int, tuple[int, int]] = {}
        self.batches: list[tuple[int, int, ProducerBatch, int]] = []

    def check(self, producer_id: int, epoch: int, first: int, last: int) -> tuple[int, ProducerBatch | None]:
        """(error, None) to refuse or, with error NONE, let in; (NONE, batch) when it is a retry of `batch`."""
        known = self._last.get(producer_id)
        if known is not None:
            return self._check_staged(known, producer_id, epoch, first, last)
        table = self._table
        at = table.find(producer_id) if table is not None else -1
        if table is None or at < 0:
            return errors.NONE, None
        current = table.words[at + EPOCH]
        if current == epoch:
            if next_sequence(table.last_sequence(at)) == first and first:
                return errors.NONE, None
            duplicate = table.duplicate(at, first, last)
            if duplicate is not None:
                return errors.NONE, duplicate
        return _verdict(current, table.last_sequence(at), epoch, first), None

    def _check_staged(
        self, known: tuple[int, int], producer_id: int, epoch: int, first: int, last: int
    ) -> tuple[int, ProducerBatch | None]:
        verdict = _verdict(*known, epoch, first)
        if verdict:
            for staged_id, staged_epoch, batch, _ in self.batches:
                if (staged_id, staged_epoch, batch[0], batch[1]) == (producer_id, epoch, first, last):
                    return errors.NONE, batch
            if known[0] == epoch and self._table is not None:
                at = self._table.find(producer_id)
                if at >= 0 and self._table.words[at + EPOCH] == epoch:
                    duplicate = self._table.duplicate(at, first, last)
                    if duplicate is not None:
                        return errors.NONE, duplicate
        return verdict, None

    def check_own(self, producer_id: int, epoch: int) -> int:
        """Whether the coordinator may write for a producer: only an older epoch is refused."""
        table = self._table
        at = table.find(producer_id) if table is not None else -1
        fenced = table is not None and at >= 0 and epoch < table.words[at + EPOCH]
        return errors.INVALID_PRODUCER_EPOCH if fenced else errors.NONE

    def let_in(self, producer_id: int, epoch: int, batch: ProducerBatch, kind: int = PLAIN) -> None:
        """Remember a checked batch that is being appended."""
        self._last[producer_id] = (epoch, batch[1])
        self.batches.append((producer_id, epoch, batch, kind))

    def decide(self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int) -> None:
        """Remember a marker that ends `producer_id`'s transaction."""
        row = ProducerBatch(coordinator_epoch, -1, offset, offset, timestamp)
        self.batches.append((producer_id, epoch, row, MARKER))


def _verdict(known_epoch: int, known_last: int, epoch: int, first: int) -> int:
    """Kafka's ProducerAppendInfo checks for a producer that the partition knows."""
    if epoch < known_epoch:
        return errors.INVALID_PRODUCER_EPOCH
    if epoch > known_epoch:
        return errors.OUT_OF_ORDER_SEQUENCE_NUMBER if first != 0 else errors.NONE
    if known_last < 0:  # fenced by a bump before it wrote anything
        return errors.NONE if first == 0 else errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    return errors.NONE if next_sequence(known_last) == first else errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def recovered(producers: Mapping[int, producers_file.ProducerEntry]) -> list[ProducerEntry]:
    """Producers as recovery found them, in the form of the shared table."""
    return [
        ProducerEntry(
            producer_id,
            entry.epoch,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
            tuple(ProducerBatch(*batch[:5]) for batch in entry.batches if batch.first_seq >= 0),
        )
        for producer_id, entry in producers.items()
    ]


def for_snapshot(entries: Iterable[ProducerEntry]) -> dict[int, producers_file.ProducerEntry]:
    """Producers of the shared table, in the form of snapshot files."""
    return {
        entry.producer_id: producers_file.ProducerEntry(
            entry.epoch,
            entry.coordinator_epoch,
            entry.timestamp,
            entry.txn_first,
            [producers_file.ProducedBatch(*batch, entry.epoch) for batch in entry.batches],
        )
        for entry in entries
    }
