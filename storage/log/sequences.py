"""The rules of the idempotent producer (KIP-98, KIP-360) over a partition's shared producer table.

Callers hold the partition's lock. A coalesced append checks its batches one after the other against the table *and*
against the batches it has already admitted (`staged`), and applies all of them once the log end is published: after a
death in between, repair replays the log from `pstate_leo`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.ipc import region, renewal
from odradek.ipc.producers import EPOCH, KEPT, Entry, ProducerBatch, ProducerEntry, ProducerTable, Row
from odradek.protocol import errors
from odradek.protocol.batch import next_sequence
from odradek.protocol.wire import INT32_MAX
from odradek.storage.producers import producer_state as producers_file

if TYPE_CHECKING:
    from odradek.storage.log.log_batch import Batch

# The kinds of a staged row. A MARKER row has its coordinator epoch as first sequence; OWN is a transactional batch that
# the coordinator wrote for a producer (offsets of a transaction): it opens the transaction and has no sequences.
PLAIN, TRANSACTIONAL, MARKER, OWN = range(4)

Original = tuple[int, int]
"""Base offset and timestamp of the batch that a retry repeats."""

_EXPECTED = 1000  # producers kept from one append to the next


class Producers:
    """One partition's producer state as this process sees it."""

    __slots__ = ("_broker", "_generation", "_incarnation", "_prefix", "_slot", "_staged", "_staged_at", "_table")

    def __init__(self, prefix: str, slot: int, incarnation: int, broker: int) -> None:
        """`incarnation` of the slot, in the names of tables; `broker`: that of the broker's regions (ipc.region)."""
        self._prefix, self._slot, self._incarnation, self._broker = prefix, slot, incarnation, broker
        self._table: ProducerTable | None = None
        self._generation = 0
        self._staged: Staged | None = None
        self._staged_at = (-1, -1)

    def staged(self, generation: int, leo: int) -> Staged:
        """A `Staged` for an append that begins at `leo`, with the table of `generation`.

        The expected sequences from this process's last append are still valid if no process has appended since.
        """
        staged = self._staged
        if staged is None or self._staged_at != (generation, leo):
            self._staged = staged = Staged(self.table(generation))
        self._staged_at = (-1, -1)  # until everything staged is applied
        return staged

    def table(self, generation: int) -> ProducerTable | None:
        """The table of `generation`, None for 0 (no idempotent producer has written yet)."""
        if generation != self._generation:
            self._table = ProducerTable.attach(self._name(generation)) if generation else None
            self._generation = generation
        return self._table

    def _name(self, generation: int) -> str:
        return ProducerTable.name(self._prefix, self._slot, self._incarnation, generation)

    def replace(self, entries: Iterable[ProducerEntry], generation: int, most: int) -> int:
        """Make a table of `entries`, or of the newest if there are more than `most`; returns its generation, for the
        caller to publish. Without a table and without producers there is none: 0. SharedMemoryFull."""
        kept = _newest(list(entries), most)
        if not generation and not kept:
            return 0
        table = self._next(generation, len(kept) + 1, most)
        for entry in renewal.along(kept):
            table.load(entry)
        return self._use(table, generation + 1)

    def keep(self, places: Sequence[int], generation: int, more: int, most: int) -> int:
        """Make a table of the entries at `places` in the table of `generation`, with room for `more`; as `replace`."""
        former = self.table(generation)
        table = self._next(generation, len(places) + more, most)
        if former is not None:
            table.copy_from(former, places)
        return self._use(table, generation + 1)

    def _next(self, generation: int, at_least: int, most: int) -> ProducerTable:
        return ProducerTable.create(self._name(generation + 1), self._broker, at_least, most)

    def _use(self, table: ProducerTable, generation: int) -> int:
        self._table, self._generation = table, generation
        return generation

    def retire(self, generation: int) -> None:
        """Unlink a generation that a *published* newer one has replaced; a death before that only wastes its memory."""
        if generation:
            region.unlink(self._name(generation))

    def missing(self, generation: int, ids: Collection[int]) -> int:
        """The number of producers in `ids` that the table of `generation` lacks."""
        table = self.table(generation)
        return len(ids) if table is None else sum(table.find(one) < 0 for one in ids)

    def has_room(self, generation: int, count: int) -> bool:
        """Whether the table of `generation` can take `count` more producers."""
        table = self.table(generation)
        return table is not None and table.has_room(count)

    def grow(self, generation: int, ids: Collection[int], most: int) -> int:
        """Make a table with room for all of `ids`, including those in the table of `generation`: an append applies its
        staged rows to a producer's entry, so that entry must stay. As `replace`."""
        table, count = self.table(generation), self.missing(generation, ids)
        if table is None:
            return self.keep((), generation, count, most)
        if table.used + count <= most:
            return self.keep(table.places(), generation, count, most)
        places = table.newest(most // 2, ids)
        if (len(places) + count) * 4 > most * 3:  # many open transactions: avoid this scan for each new producer
            most = (len(places) + count) * 2
        return self.keep(places, generation, count, most)

    def publish(self, staged: Staged, generation: int, leo: int) -> None:
        """`apply` the staged rows of an append that ends at `leo`; the next append may reuse `staged`."""
        table = self._table if generation == self._generation else None
        followed = staged.followed
        if followed and not staged.rows and table and table.append_known(staged.producer_id, staged.epoch, followed):
            followed.clear()
        else:
            self.apply(staged, generation)
            staged.clear()
        self._staged_at = (generation, leo)

    def apply(self, staged: Staged, generation: int) -> None:
        """Write the staged rows to the table, which has room for them (storage.log.producer_capacity)."""
        staged.store_followed()
        table = self.table(generation)
        producer_id, at = -1, -1
        for row in staged.rows[-KEPT:] if staged.one else staged.rows:
            assert table is not None
            if row[0] != producer_id:
                producer_id = row[0]
                at = table.find(producer_id)
                if at < 0:
                    at = table.insert(producer_id, row[1])
            if row[7] == PLAIN:
                table.append(at, row)
            else:
                _store(table, at, row)

    def forget(self) -> None:
        """Drop the mapping: another process may recreate a table that was created and not published."""
        self._table, self._generation, self._staged_at = None, 0, (-1, -1)


def _store(table: ProducerTable, at: int, row: Row) -> None:
    _, epoch, first, _, base, _, timestamp, kind = row
    if kind == MARKER:
        table.end(at, epoch, first, timestamp, base)
        return
    if kind == OWN:
        table.enter(at, epoch, timestamp)
    else:
        table.append(at, row)
    table.begin(at, base)


class Staged:
    """The batches that one coalesced append has admitted so far: `rows`, then `followed`, plain next batches of
    `producer_id`.

    `one` while all rows are plain rows of a single producer; `fresh` are the producers that the table lacks; `begun`:
    (id, epoch) of producers with transactional batches.
    """

    __slots__ = ("_expected", "_next", "_table", "begun", "epoch", "followed", "fresh", "one", "producer_id", "rows")

    def __init__(self, table: ProducerTable | None) -> None:
        self._table = table
        self._expected: dict[int, tuple[int, int]] = {}  # by producer id: its epoch and next sequence
        self.producer_id = self.epoch = self._next = -1  # the same for the last producer, which usually continues
        self.rows: list[Row] = []
        self.followed: list[Entry] = []  # in the table's own form, since nearly all batches are of this kind
        self.one = True
        self.fresh: set[int] = set()
        self.begun: set[tuple[int, int]] = set()

    def is_new(self, producer_id: int) -> bool:
        """Whether a batch of this producer needs an entry that has no reserved room yet."""
        if producer_id in self._expected or producer_id in self.fresh:
            return False
        return self._table is None or self._table.find(producer_id) < 0

    def ids(self) -> set[int]:
        """The producers that `Producers.apply` will write, or that have reserved room."""
        self._save_expected()
        return {row[0] for row in self.rows} | self.fresh

    def moved(self, table: ProducerTable | None) -> None:
        """Switch to another table; producers that it dropped count as new again."""
        self._table, ids = table, self.ids()
        kept = {one for one in self._expected if one in ids or (table is not None and table.find(one) >= 0)}
        self._expected = {one: expected for one, expected in self._expected.items() if one in kept}

    def clear(self) -> None:
        """Reset after everything is applied."""
        self.rows.clear()
        self.fresh.clear()
        self.begun.clear()
        self.one = True
        if len(self._expected) > _EXPECTED:
            self._expected.clear()

    def extends(self, batch: Batch, offset: int) -> bool:
        """Admit `batch` at `offset` if it is the plain next batch of the last producer; else it needs `admit`."""
        first, count = batch.sequence, batch.count
        following = first + count
        if (
            first != self._next
            or batch.producer_id != self.producer_id
            or batch.epoch != self.epoch
            or following > INT32_MAX
            or batch.transactional
        ):
            return False
        self._next = following
        self.followed.append((first << 32 | following - 1, offset, offset + count - 1, batch.max_timestamp))
        return True

    def store_followed(self) -> None:
        """Move `followed` to rows: a batch other than the next one comes behind them, or all are applied."""
        for span, base, end, timestamp in self.followed:
            self._append(self.producer_id, self.epoch, span >> 32, span & 0xFFFFFFFF, base, end, timestamp, PLAIN)
        self.followed.clear()

    def _save_expected(self) -> None:
        """Store the last producer's expected sequence before a batch that is not its next one."""
        self.store_followed()
        if self._next > 0:
            self._expected[self.producer_id] = (self.epoch, self._next)
        self.producer_id = self._next = -1  # a batch without a sequence follows no other

    def admit(self, batch: Batch, offset: int, some_open: bool = False) -> tuple[int, Original | None]:
        """(error, original) for a batch to append at `offset`.

        An error refuses it; an original means that it is a retry of a batch already in the log.
        `some_open`: the partition has open transactions. Within its own, a producer may send only transactional ones.
        """
        producer_id, epoch, first = batch.producer_id, batch.epoch, batch.sequence
        last = first + batch.count - 1
        if last > INT32_MAX:
            last -= 0x80000000
        self._save_expected()
        expected = self._expected.get(producer_id) or self._known(producer_id)
        if expected is None or expected != (epoch, first) or not first:
            error, original = self._unexpected(expected, producer_id, epoch, first, last)
            if error or original is not None:
                return error, original
        if some_open and not batch.transactional and self._in_transaction(producer_id):
            return errors.INVALID_TXN_STATE, None
        self._expected[producer_id] = (epoch, last + 1 if last != INT32_MAX else 0)
        kind = TRANSACTIONAL if batch.transactional else PLAIN
        self.replay(producer_id, epoch, first, last, offset, offset + batch.count - 1, batch.max_timestamp, kind)
        if kind == PLAIN and last != INT32_MAX:
            self.producer_id, self.epoch, self._next = producer_id, epoch, last + 1
        return _LET_IN

    def _in_transaction(self, producer_id: int) -> bool:
        table = self._table
        at = table.find(producer_id) if table is not None else -1
        is_open = table is not None and at >= 0 and table.txn_first(at) >= 0
        return is_open or any(one == producer_id for one, _ in self.begun)

    def known(self, producer_id: int) -> tuple[int, int] | None:
        """A producer's epoch and next sequence after the admitted batches; None for an unknown producer."""
        return self._expected.get(producer_id) or self._known(producer_id)

    def _known(self, producer_id: int) -> tuple[int, int] | None:
        """A producer's epoch and next sequence in the table: -1 if it has written nothing in its epoch."""
        table = self._table
        at = table.find(producer_id) if table is not None else -1
        if table is None or at < 0:
            return None
        last = table.last_sequence(at)
        return table.words[at + EPOCH], next_sequence(last) if last >= 0 else -1

    def _unexpected(
        self, expected: tuple[int, int] | None, producer_id: int, epoch: int, first: int, last: int
    ) -> tuple[int, Original | None]:
        """(error, original) for a batch that is not its producer's next: unknown producer, retry, or error."""
        if expected is None:
            return _LET_IN
        if expected[0] == epoch:
            original = self._original(producer_id, epoch, first, last)
            if original is not None:
                return errors.NONE, original
        return _verdict(*expected, epoch, first), None

    def _original(self, producer_id: int, epoch: int, first: int, last: int) -> Original | None:
        """The batch with exactly these sequences, in this append or among the producer's last five."""
        for row in self.rows:
            if row[:4] == (producer_id, epoch, first, last):
                return row[4], row[6]
        table = self._table
        at = table.find(producer_id) if table is not None else -1
        if table is None or at < 0 or table.words[at + EPOCH] != epoch:
            return None
        return table.duplicate(at, first, last)

    def enter(self, batch: Batch, offset: int) -> int:
        """Admit a transactional batch that the coordinator wrote for a producer: an error only for an older epoch."""
        self._save_expected()
        known = self._known(batch.producer_id)
        if known is not None and batch.epoch < known[0]:
            return errors.INVALID_PRODUCER_EPOCH
        end = offset + batch.count - 1
        self.replay(batch.producer_id, batch.epoch, -1, -1, offset, end, batch.max_timestamp, OWN)
        return errors.NONE

    def replay(
        self, producer_id: int, epoch: int, first: int, last: int, base: int, end: int, timestamp: int, kind: int
    ) -> None:  # fmt: skip
        """Admit a batch that was checked before, for a replay of the log."""
        self.store_followed()
        self._append(producer_id, epoch, first, last, base, end, timestamp, kind)

    def _append(
        self, producer_id: int, epoch: int, first: int, last: int, base: int, end: int, timestamp: int, kind: int
    ) -> None:  # fmt: skip
        if kind != PLAIN or (self.rows and self.rows[-1][0] != producer_id):
            self.one = False
        if kind in (TRANSACTIONAL, OWN):
            self.begun.add((producer_id, epoch))
        self.rows.append((producer_id, epoch, first, last, base, end, timestamp, kind))

    def decide(self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int) -> None:
        """Stage a marker that ends `producer_id`'s transaction; its epoch fences the sequence expected of an older."""
        self._save_expected()
        if self._expected.get(producer_id, (epoch, 0))[0] != epoch:
            self._expected[producer_id] = (epoch, -1)
        self.replay(producer_id, epoch, coordinator_epoch, -1, offset, offset, timestamp, MARKER)


_LET_IN = (errors.NONE, None)


def _verdict(known_epoch: int, following: int, epoch: int, first: int) -> int:
    """Kafka's ProducerAppendInfo checks for a producer that the partition knows; `following` is -1 before its first."""
    if epoch < known_epoch:
        return errors.INVALID_PRODUCER_EPOCH
    if epoch > known_epoch or following < 0:  # below 0: an epoch bump fenced it before its first batch
        return errors.OUT_OF_ORDER_SEQUENCE_NUMBER if first != 0 else errors.NONE
    return errors.NONE if following == first else errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def recovered(producers: Mapping[int, producers_file.ProducerEntry]) -> list[ProducerEntry]:
    """The recovered producers in the form of the shared table."""
    return [
        ProducerEntry(
            producer_id,
            entry.epoch,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
            tuple(ProducerBatch(*batch[:5]) for batch in entry.batches if batch.first_seq >= 0),
            entry.marked_offset,
        )
        for producer_id, entry in renewal.along(producers.items())
    ]


def _newest(entries: list[ProducerEntry], most: int) -> list[ProducerEntry]:
    if len(entries) <= most:
        return entries
    renewal.renew()
    entries.sort(key=lambda entry: entry.last_offset, reverse=True)
    renewal.renew()
    return entries[: most // 2] + [entry for entry in entries[most // 2 :] if entry.txn_first >= 0]
