"""Which transactional batches may open a transaction (KIP-890): a model of verifications, markers and batches."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.ipc import slots
from odradek.storage.log import control_batch
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import NOT_ASKED, VerificationGuard

from ..live import NOW, batch, live

PRODUCERS = st.integers(1, 3)


class Opening(RuleBasedStateMachine):
    """Writes, verifications and markers of producers in any order.

    `asked`: the guard of each one's last verification.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.partition = self.stack.enter_context(live(folder)).partition()
        self.asked: dict[int, VerificationGuard] = {}
        self.fresh: set[int] = set()  # without a marker since their verification
        self.open: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.strangers = 100

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        """Batches of one round: all are stored, or all are left out."""
        some = []
        for step in range(count):
            one = batch(b"x", producer=producer, sequence=self.sequences.get(producer, 0) + step)
            one.transactional, one.guard = True, self.asked.get(producer, NOT_ASKED)
            some.append(one)
        with self.partition.locked() as values:
            generation = values[slots.F_PSTATE_GEN]
            append(self.partition, values, some, NOW)
        left_out, self.partition.unverified = self.partition.unverified, []
        assert not any(one.error for one in some)
        known = producer in self.fresh and self.asked[producer].generation == generation
        if producer in self.open or known:
            assert left_out == []
            self.open.add(producer)
            self.sequences[producer] = self.sequences.get(producer, 0) + count
        else:
            assert left_out == some
            self.asked[producer] = some[0].guard or NOT_ASKED
            self.fresh.add(producer)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        assert control_batch.write_marker(self.partition, producer, 0, 0, commit, NOW) == 0
        self.open.discard(producer)
        self.fresh.discard(producer)

    @rule(count=st.integers(1, 20))
    def others_write(self, count: int) -> None:
        """The producer table grows: earlier verifications no longer count, except for open transactions."""
        some = [batch(b"y", producer=self.strangers + number, sequence=0) for number in range(count)]
        self.strangers += count
        with self.partition.locked() as values:
            append(self.partition, values, some, NOW)
        assert not any(one.error for one in some)

    @invariant()
    def the_last_stable_offset_waits_for_open_ones_only(self) -> None:
        assert (self.partition.state().unstable >= 0) == bool(self.open)

    def teardown(self) -> None:
        self.stack.close()


TestOpening = Opening.TestCase
TestOpening.settings = settings(max_examples=30)  # each has shared memory and files of its own
