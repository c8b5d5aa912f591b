"""A model of any log, by dictionaries: the model of compaction, and the other data that readers get.

Besides records these are markers, aborted transactions, times, leader epochs, and what the log knows of producers; and
a log may end earlier than it did, or start over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.ipc.producers import ProducerEntry

from .compaction.compaction_model import Model, Transaction

Epochs = list[tuple[int, int]]


class Raw(NamedTuple):
    """A record in the log, those of markers included."""

    offset: int
    timestamp: int
    control: bool


class Act(NamedTuple):
    """A batch of a producer: data, or a marker. `sequence` is -1 of a coordinator's, which has none."""

    offset: int
    last: int
    producer_id: int
    epoch: int
    sequence: int
    timestamp: int
    inside: bool = False
    marker: bool = False


@dataclass
class Known:
    """The log's state of a producer; its last batches as (first sequence, last offset)."""

    epoch: int
    timestamp: int = -1
    coordinator: int = -1
    first: int = -1
    batches: list[tuple[int, int]] = field(default_factory=list)
    act: Act | None = None


@dataclass
class LogModel(Model):
    """See the module's head."""

    markers: set[int] = field(default_factory=set)
    acts: list[Act] = field(default_factory=list)
    epochs: Epochs = field(default_factory=list)
    reloaded: int = 0  # the log end when producers were read from files last: of batches below only the last is sure

    def lead(self, epoch: int) -> None:
        """An epoch begins at the log end."""
        self.epochs = assigned(self.epochs, epoch, self.leo)

    def producers(self) -> dict[int, Known]:
        """From all operations of producers."""
        found: dict[int, Known] = {}
        for act in self.acts:
            one = found.setdefault(act.producer_id, Known(act.epoch))
            if one.epoch != act.epoch:
                one.epoch, one.batches = act.epoch, []
            one.timestamp, one.act = act.timestamp, act
            if act.marker:
                one.coordinator, one.first = 1, -1
            elif act.sequence >= 0:
                one.batches = [*one.batches[-4:], (act.sequence, act.last)]
            if act.inside and one.first < 0:
                one.first = act.offset
        return found

    def end(self, producer_id: int, commit: bool) -> None:
        self.markers.add(self.leo)
        super().end(producer_id, commit)

    def truncate(self, leo: int, log_start: int) -> None:
        super().truncate(leo, log_start)
        self.markers = {offset for offset in self.markers if offset < leo}
        self.acts = [act for act in self.acts if act.offset < leo]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < leo]
        self.reloaded = leo

    def start_over(self, offset: int) -> None:
        """The log is empty and begins at `offset`."""
        self.truncate(0, 0)
        self.log_start = self.leo = offset

    # --- what readers get

    def compare_producers(self, table: dict[int, ProducerEntry], vague: set[int], gapped: bool) -> None:
        """What the next append goes by. Of those that are `vague` the files may no more tell; `gapped`: the cleaner may
        have emptied markers, so that a start does not know what they said beyond the end of a transaction.
        """
        expected = self.producers()
        assert set(table) - vague <= set(expected)
        for producer_id, one in expected.items():
            if producer_id in vague:
                continue
            found = table[producer_id]
            assert (found.epoch, found.txn_first) == (one.epoch, one.first), producer_id
            batches = [(batch.first_sequence, batch.last_offset) for batch in found.batches]
            assert batches[-1:] == one.batches[-1:], "another batch than the last"
            if not gapped:  # those between may be compacted away
                assert batches == one.batches[len(one.batches) - len(batches) :], "other batches than were written"
            sure = [batch for batch in one.batches if batch[1] >= self.reloaded]
            assert len(batches) >= max(len(sure), min(len(one.batches), 1)), "batches of a producer are forgotten"
            assert gapped or found.coordinator_epoch == one.coordinator
            by_coordinator = one.act if one.act is not None and one.act.sequence < 0 and not one.act.marker else None
            # No list of batches has the time of others.
            known = by_coordinator is None or by_coordinator.offset >= self.reloaded
            assert gapped or not known or found.timestamp == one.timestamp

    def compare_some_producers(self, table: dict[int, ProducerEntry], gapped: bool) -> None:
        """Where `odradek.producers.max` forgets some: none with an open transaction, and it confuses no others."""
        expected = self.producers()
        assert {producer_id for producer_id, one in expected.items() if one.first >= 0} <= set(table) <= set(expected)
        for producer_id, found in table.items():
            one = expected[producer_id]
            assert (found.epoch, found.txn_first) == (one.epoch, one.first), producer_id
            batches = [(batch.first_sequence, batch.last_offset) for batch in found.batches]
            assert gapped or batches == one.batches[len(one.batches) - len(batches) :], (
                "other batches than were written"
            )

    def compare_epochs(self, found: Epochs, first: int) -> None:
        """From `first` on; below the log start they may be known still, as long as the broker runs."""
        first = max(first, self.log_start)
        assert first >= self.leo or begun(found, first) == begun(self.epochs, first)

    def compare_raw(self, found: list[Raw]) -> None:
        """All that is in the files: records in order, markers where they were written."""
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        for one in found:
            if one.control:
                assert one.offset in self.markers
            else:
                assert one.timestamp == self.written[one.offset].seen.timestamp
        kept = {one.offset for one in found if one.control}
        first = max(self.looked_upto, self.log_start)
        assert {offset for offset in self.markers if offset >= first} <= kept, "a marker is lost"

    def compare_aborted(
        self, rows: Iterable[tuple[int, int]], start: int, end: int, first_base: int, there: set[int]
    ) -> None:  # fmt: skip
        """What a Fetch says of [start, end), where records are `there`.

        Where the cleaner was, or retention, a row may go with the last record of its transaction, and may begin with
        the first left: it was made again from what there was. So it may begin below the first segment, with a former
        transaction of its producer of which nothing is left, the marker neither.
        """
        told, last = set(rows), max(start, first_base)
        for one in self._aborted():
            if one.marker < last or one.first >= end:
                continue
            left = [
                offset for offset in range(max(one.first, first_base), one.marker) if self._is_of(offset, one, there)
            ]
            begins = one.first if one.first >= max(self.looked_upto, first_base) else min(left, default=None)
            naming = {(one.producer_id, n) for n in range(one.first, (one.marker if begins is None else begins) + 1)}
            naming |= {row for row in told if row[1] < first_base and self._joins(row[0], one, first_base, there)}
            assert told & naming or begins is None or begins >= end, f"an aborted one is missing: {one}"
            told -= naming
        assert not told, f"they were not aborted: {told}"

    def _joins(self, producer_id: int, one: Transaction, first_base: int, there: set[int]) -> bool:
        """Whether nothing is left of what the producer wrote in transactions before this one, where the cleaner was."""
        former = [two for two in self.ended() if two.producer_id == producer_id == one.producer_id]
        before = range(first_base, one.first)
        left = any(self._is_of(offset, two, there) for two in former if two.first < one.first for offset in before)
        return bool(former) and self.looked_upto > first_base and not left

    def ended(self) -> list[Transaction]:
        """All transactions that a marker has ended."""
        all_ = {id(one.transaction): one.transaction for one in self.written.values() if one.transaction is not None}
        return [one for one in all_.values() if one.commit is not None]

    def _aborted(self) -> list[Transaction]:
        return [one for one in self.ended() if one.commit is False]

    def _is_of(self, offset: int, one: Transaction, there: set[int]) -> bool:
        return offset in there and offset in self.written and self.written[offset].transaction is one


def assigned(epochs: Epochs, epoch: int, start: int) -> Epochs:
    """With one more that begins at `start`: none that begins there or later had anything written in it."""
    return [one for one in epochs if one[0] < epoch and one[1] < start] + [(epoch, start)]


def begun(epochs: Epochs, start: int) -> Epochs:
    """As they are when the log begins at `start`."""
    below = [epoch for epoch, first in epochs if first <= start]
    return [(epoch, start) for epoch in below[-1:]] + [one for one in epochs if one[1] > start]
