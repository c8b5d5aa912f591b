"""The state of transactions while `__transaction_state` is compacted and reloaded: each load finds the same state."""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.loading import TransactionReplay
from odradek.groups.transactions.transaction import Metadata
from odradek.storage.compaction.compaction import DedupeBuffer
from tests.storage.compaction.compaction_world import World as LogWorld

from .compacted_log import CompactedLog
from .transaction_world import TransactionWorld

NAMES, OTHER = ["x", "y", "z"], "w"
NAME = st.sampled_from(NAMES)
EXPIRY_MS = 100_000


class Machine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="odradek-transactions-"))
        self.coordinator_log: CompactedLog | None = None
        self.producers: dict[str, Producer] = {}

    @initialize(segment_bytes=st.sampled_from([300, 700]))
    def begin(self, segment_bytes: int) -> None:
        self.coordinator_log = CompactedLog(self.root, segment_bytes=segment_bytes)
        self.world = TransactionWorld(self.coordinator_log, expiration_ms=EXPIRY_MS, expiry_interval_ms=1000)  # type: ignore[arg-type]  # a test double

    @property
    def log(self) -> LogWorld:
        assert self.coordinator_log is not None
        return self.coordinator_log.log

    @rule(name=NAME)
    def init(self, name: str) -> None:
        answer = self.world.init(name)
        if answer is not None and not answer.error:
            self.producers[name] = Producer(name, answer.producer_id, answer.epoch)

    @rule(name=NAME, partition=st.integers(0, 3))
    def add(self, name: str, partition: int) -> None:
        if name in self.producers:
            self.world.add(self.producers[name], ("t", partition))

    @rule(name=NAME, commit=st.booleans())
    def end(self, name: str, commit: bool) -> None:
        if name in self.producers:
            self.world.end(self.producers[name], commit)

    @rule()
    def mark(self) -> None:
        self.world.mark()

    @rule(name=NAME, commit=st.booleans(), rolls=st.booleans())
    def whole_transaction(self, name: str, commit: bool, rolls: bool) -> None:
        self.init(name)
        self.add(name, 0)
        if rolls:
            self.log.roll()
        self.end(name, commit)
        self.world.mark()

    @rule(ms=st.sampled_from([1, 1000, EXPIRY_MS]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)
        self.log.now_ms = self.world.now.wall_ms

    @rule(rolls=st.booleans())
    def clean(self, rolls: bool) -> None:
        if rolls:
            self.log.roll()
        self.log.clean(DedupeBuffer())

    @rule()
    def begin_round(self) -> None:
        self.log.begin_round(DedupeBuffer())

    @rule(steps=st.integers(1, 9))
    def go_on(self, steps: int) -> None:
        self.log.go_on(steps)

    @rule(name=NAME, part=st.integers(1, 3))
    def load_while_it_is_cleaned(self, name: str, part: int) -> None:
        """An id has expired; the load reads a part, the cleaner runs twice, the load reads the rest."""
        assert self.coordinator_log is not None
        self.init(name)
        self.world.mark()
        self.log.roll()
        self.wait(2 * EXPIRY_MS)
        self.init(OTHER)
        replay, count = TransactionReplay(), len(list(self.coordinator_log.read_all(0)))
        batches = self.coordinator_log.read_all(0, at_once=1)
        for batch in islice(batches, count * part // 4):
            replay.feed(batch)
        for _ in range(2):
            self.clean(rolls=True)
            self.init(OTHER)
        for batch in batches:
            replay.feed(batch)
        assert _comparable(replay.transactions) == self._states()

    def _states(self) -> dict[str, Metadata]:
        found = {name: self.world.transactions.get(name) for name in (*NAMES, OTHER)}
        return _comparable({name: one.metadata for name, one in found.items() if one is not None})

    @rule(broker=st.booleans(), clean=st.booleans(), part=st.integers(0, 4))
    def restart(self, broker: bool, clean: bool, part: int) -> None:
        """The coordinator process or the broker dies. Unwritten markers are requested again."""
        before = self._states()
        if broker:
            self.log.restart(clean, self.log.model.leo * part // 4)
        self.world = self.world.restarted()
        assert self._states() == before

    @invariant()
    def compare(self) -> None:
        if self.coordinator_log is not None:
            self.log.compare()

    def teardown(self) -> None:
        try:
            if self.coordinator_log is not None:
                self.log.compare_files()
        finally:
            if self.coordinator_log is not None:
                self.log.close()
            shutil.rmtree(self.root)


def _comparable(found: dict[str, Metadata]) -> dict[str, Metadata]:
    """The metadata without the fields that version 0 of the records, which we write, lacks."""
    return {name: metadata._replace(previous_producer_id=-1) for name, metadata in found.items()}


def _run(examples: int, steps: int) -> None:
    chosen = settings(max_examples=examples, stateful_step_count=steps, report_multiple_bugs=False)
    run_state_machine_as_test(Machine, settings=chosen)


@pytest.mark.slow
@pytest.mark.timeout(900)  # hypothesis takes its time to find the shortest example of a fault
def test_compaction_and_reloads_keep_transaction_state() -> None:
    _run(15, 40)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_compaction_and_reloads_keep_transaction_state_in_many_histories() -> None:
    _run(700, 80)
