"""`odradek.producers.max` near the capacities of tables: a model of appends by long idle producers."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ..live import batch, live, put
from .following import follower, receive, sent

CAPS = [1, 2, 9, 10, 11, 14, 15, 20, 40, 42, 43, 62, 63, 64, 83, 84]  # capacities are 15, 63, 255, …, 2/3 of it in use


class Capped(RuleBasedStateMachine):
    """Every append has room for all of its producers, also for those that a growth during it would evict."""

    @initialize(cap=st.sampled_from(CAPS), leads=st.booleans())
    def begin(self, cap: int, leads: bool) -> None:
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        world = self.stack.enter_context((live if leads else follower)(folder, producers_max=cap))
        self.partition, self.leads, self.cap = world.partition(), leads, cap
        self.sequences: dict[int, int] = {}  # the next of each producer, in the order of their last batches
        self.strangers = self.most_at_once = 0

    def write(self, ids: list[int]) -> None:
        """A batch for each of `ids` in one append."""
        sequences = []
        for one in ids:
            sequences.append(self.sequences.pop(one, 0))
            self.sequences[one] = sequences[-1] + 1
        if self.leads:
            made = [batch(b"x", producer=one, sequence=at) for one, at in zip(ids, sequences, strict=True)]
            put(self.partition, *made)
            assert [one.error for one in made] == [0] * len(made)
        else:
            leo = self.partition.state().leo
            rows = enumerate(zip(ids, sequences, strict=True), leo)
            receive(self.partition, b"".join(sent(offset, producer=(one, 0, at)) for offset, (one, at) in rows))
        self.most_at_once = max(self.most_at_once, len(set(ids)))
        self.check(ids)

    def check(self, ids: list[int]) -> None:
        table = self.partition.producers.table(self.partition.state().pstate_gen)
        assert table is not None
        assert table.used == len(table.places()) <= table.words[2] <= table.capacity * 2 // 3
        assert table.used <= self.cap + 2 * self.most_at_once
        places = [table.find(one) for one in ids]
        assert -1 not in places
        assert [table.last_sequence(at) for at in places] == [self.sequences[one] - 1 for one in ids]

    def new(self, count: int) -> list[int]:
        self.strangers += count
        return list(range(self.strangers - count + 1, self.strangers + 1))

    @rule(count=st.integers(1, 90))
    def new_ones_in_turn(self, count: int) -> None:
        for one in self.new(count):
            self.write([one])

    @rule(old=st.integers(0, 90), new=st.integers(1, 40), again=st.integers(0, 90), new_first=st.booleans())
    def together(self, old: int, new: int, again: int, new_first: bool) -> None:
        """Append for the longest idle producers, known or forgotten, and for new ones; then for some of them again."""
        silent, strangers = list(self.sequences)[:old], self.new(new)
        ids = strangers + silent if new_first else silent + strangers
        self.write(ids + ids[:again])

    def teardown(self) -> None:
        self.stack.close()


TestCapped = pytest.mark.slow(Capped.TestCase)
TestCapped.settings = settings(max_examples=40, stateful_step_count=10)
