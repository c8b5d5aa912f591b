"""Compares a log with its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.ipc import slots
from odradek.protocol.records import batch_v2, convert
from odradek.storage.files import names
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.log import read, reindex, transactions
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check

from .log import by_time
from .log_batches import raw
from .log_model import Raw
from .log_steps import LogSteps

MENDED = 30  # indexes that one check may find damaged


class LogComparison(LogSteps):
    """By readers, by the slot, and by `odradek check`."""

    def reading(self, look: Callable[[], Any]) -> Any:
        """Read as readers do: after a damaged index they retry, once the janitor has rebuilt it."""
        for _ in range(MENDED):
            try:
                return look()
            except DamagedIndex as error:
                self.say(str(error))
                reindex.mend(self.partition)
        raise AssertionError("damaged again and again")

    def compare(self) -> None:
        self.reading(super().compare)
        self.reading(self._compare_raw)
        if self.rng.random() < 0.3:
            self.compare_files()

    def _compare_raw(self) -> None:
        found = raw(self.live.partition(5))
        self.model.compare_raw([one for one in found if one.offset >= self.model.log_start])
        self._compare_aborted({one.offset for one in found})
        self._compare_times(found)
        self._compare_places([one.offset for one in found])
        self._compare_state()

    def _compare_places(self, found: list[int]) -> None:
        """From any offset a reader gets the batch with the next record, with any state of the index."""
        reader = self.live.partition(5)
        values = reader.slot.read()
        for offset in self.rng.sample(found, min(len(found), 10)):
            piece = read.fetch(reader, values, offset, self.model.leo, 1)
            assert piece is not None or offset < self.model.log_start
            first = next(iter(convert.split(piece.read()))) if piece is not None else b""
            assert piece is None or offset in [row[0] for row in batch_v2.iterate(first)]

    def _compare_state(self) -> None:
        """The state that appends use, and the epochs that followers receive."""
        with self.partition.locked() as values:
            table = self.partition.producers.table(values[slots.F_PSTATE_GEN])
            entries = {one.producer_id: one for one in table.entries()} if table is not None else {}
        self.model.compare_producers(entries, self.vague, self.gapped or self.weak)
        self._compare_epochs()

    def _compare_epochs(self) -> None:
        self.model.compare_epochs(list(EpochCache.read(self.directory).entries), self.forgotten)

    def _compare_aborted(self, there: set[int]) -> None:
        reader, first = self.live.partition(6), names.segment_bases(str(self.directory))[0]
        values = reader.slot.read()
        for _ in range(4):
            start = self.rng.randrange(self.model.log_start, self.model.leo + 1)
            end = self.rng.randrange(start, self.model.leo + 1)
            rows = transactions.aborted_between(reader, values, start, end)
            assert len(rows) == len(set(rows)), "one is there twice"
            self.model.compare_aborted(rows, start, end, first, there)

    def _compare_times(self, found: list[Raw]) -> None:
        """Check against every record: those of markers count too, as in Kafka."""
        reader = self.live.partition(7)
        values = reader.slot.read()
        limit = self.rng.choice([self.model.leo, self.model.lso])
        stamps = sorted({one.timestamp for one in found})
        for _ in range(4 if stamps else 0):
            wanted = max(0, self.rng.choice(stamps) + self.rng.choice([-1, 0, 0, 1]))
            expected = next(
                (one for one in found if self.model.log_start <= one.offset < limit and one.timestamp >= wanted), None
            )
            got = by_time.first_not_before(reader, values, wanted, limit)
            assert (got and got[:2]) == (expected and (expected.timestamp, expected.offset))
        newest = max(found, key=lambda one: (one.timestamp, -one.offset), default=None)
        if newest is not None and (newest.timestamp < 0 or newest.offset >= limit):
            newest = None
        latest = by_time.newest(reader, values, limit)
        assert (latest and latest[:2]) == (newest and (newest.timestamp, newest.offset))

    def compare_files(self) -> None:
        """`odradek check` finds faults only in damaged indexes that no reader has used yet."""
        faults = [one for one in check.check(self.directory, deep=True) if one.path.name not in self.excused]
        if self.forgotten:
            faults = [one for one in faults if not one.message.endswith("leader-epoch-checkpoint says -1")]
        assert not faults, [str(one) for one in faults]
        bad = {one.path.name for one in check.check(self.directory)} if self.excused else set()
        self.excused &= bad
