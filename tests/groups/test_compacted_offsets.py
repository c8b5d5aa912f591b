"""Committed offsets of groups, also in transactions, compared with a dictionary; the log is compacted and reloaded."""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from odradek.groups.loading import GroupReplay
from odradek.protocol.errors import Error
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from tests.storage.compaction.compaction_world import Producer
from tests.storage.compaction.compaction_world import World as LogWorld

from .compacted_log import CompactedLog
from .world import World, drain

GROUPS, TPS = ["g", "h"], [("t", 0), ("u", 1)]
ALL = [*TPS, ("v", 2)]
GROUP, TP, NUMBER = st.sampled_from(GROUPS), st.sampled_from(TPS), st.integers(0, 1)
MEMORY = st.sampled_from([DedupeBuffer(), DedupeBuffer(2 * ENTRY_BYTES, 1.0)])
RETENTION_MS = 100_000
DELETE_RETENTION_MS = 1000
Where = tuple[str, tuple[str, int]]


class Machine(RuleBasedStateMachine):
    """Each offset is committed only once, so that no two commits can be confused."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="odradek-offsets-"))
        self.coordinator_log: CompactedLog | None = None
        self.committed: dict[Where, tuple[int, int]] = {}  # offset, position in the log
        self.open: dict[int, dict[Where, tuple[int, int]]] = {0: {}, 1: {}}
        self.number = 0

    @initialize(segment_bytes=st.sampled_from([300, 700]))
    def begin(self, segment_bytes: int) -> None:
        self.coordinator_log = CompactedLog(
            self.root, segment_bytes=segment_bytes, delete_retention_ms=DELETE_RETENTION_MS
        )
        self.world = World(self.coordinator_log, retention_ms=RETENTION_MS)  # type: ignore[arg-type]  # a test double
        self.producers = [Producer(700 + number) for number in range(2)]

    @property
    def log(self) -> LogWorld:
        assert self.coordinator_log is not None
        return self.coordinator_log.log

    def _commit(self, group: str, tp: tuple[str, int], **fields: object) -> tuple[int, int]:
        self.number += 1
        position = self.log.model.leo
        token = self.world.commit(self.number, tp, group, **fields)
        assert self.world.answer(token) == {tp: Error.NONE}
        return self.number, position

    @rule(group=GROUP, tp=TP)
    def commit(self, group: str, tp: tuple[str, int]) -> None:
        self.committed[group, tp] = self._commit(group, tp)

    @rule(group=GROUP, tp=TP, number=NUMBER)
    def commit_in_transaction(self, group: str, tp: tuple[str, int], number: int) -> None:
        one = self.producers[number]
        self.open[number][group, tp] = self._commit(group, tp, producer=(one.id, one.epoch))

    @rule(number=NUMBER, commit=st.booleans(), rolls=st.booleans())
    def end(self, number: int, commit: bool, rolls: bool) -> None:
        if rolls:
            self.log.roll()
        one = self.producers[number]
        if one.id not in self.log.model.open:
            return
        self.log.end(one, commit)
        self.world.groups.end_transaction(0, one.id, commit, self.world.now)
        for where, found in self.open[number].items():
            if commit and self.committed.get(where, (0, -1))[1] < found[1]:
                self.committed[where] = found
        self.open[number] = {}

    @rule(group=GROUP, tp=TP, number=NUMBER, commit=st.booleans())
    def transaction_over_a_roll(self, group: str, tp: tuple[str, int], number: int, commit: bool) -> None:
        """The offsets are in a sealed segment, the marker may be in the active one, and the cleaner runs soon."""
        self.commit_in_transaction(group, tp, number)
        self.end(number, commit, rolls=True)
        self.log.clean(DedupeBuffer())

    @rule(group=GROUP, tp=TP, number=NUMBER, commit=st.booleans())
    def load_long_after_a_transaction(self, group: str, tp: tuple[str, int], number: int, commit: bool) -> None:
        """The cleaner runs again after delete.retention.ms, when markers may go."""
        self.transaction_over_a_roll(group, tp, number, commit)
        self.clean(DedupeBuffer(), rolls=True)
        self.wait(2 * DELETE_RETENTION_MS)
        self.commit(group, ("v", 2))
        self.clean(DedupeBuffer(), rolls=True)
        self.restart_coordinator()

    @rule(tp=TP, part=st.integers(1, 3))
    def load_while_it_is_cleaned(self, tp: tuple[str, int], part: int) -> None:
        """The load reads a part, the cleaner runs twice, the load reads the rest; all within delete.retention.ms."""
        assert self.coordinator_log is not None
        self.commit("g", tp)
        self.log.roll()
        self.delete_offset("g", tp)
        self.commit("h", ("v", 2))
        replay, count = GroupReplay(), len(list(self.coordinator_log.read_all(0)))
        batches = self.coordinator_log.read_all(0, at_once=1)
        for batch in islice(batches, count * part // 4):
            replay.feed(batch)
        for _ in range(2):
            self.clean(DedupeBuffer(), rolls=True)
            self.commit("h", ("v", 2))
        for batch in batches:
            replay.feed(batch)
        found = {
            (name, at): one.value.offset for name, each in replay.found().items() for at, one in each.offsets.items()
        }
        assert found == {where: offset for where, (offset, _) in self.committed.items()}

    def _forget(self, where: Where) -> None:
        self.committed.pop(where, None)
        for offsets in self.open.values():
            offsets.pop(where, None)

    @rule(group=GROUP, tp=TP)
    def delete_offset(self, group: str, tp: tuple[str, int]) -> None:
        self.world.groups.delete_offsets(group, [tp], self.world.token(), self.world.now)
        self.world.settle()
        self._forget((group, tp))

    @rule(group=GROUP)
    def delete_group(self, group: str) -> None:
        self.world.groups.delete_group(group, self.world.token(), self.world.now)
        self.world.settle()
        for tp in ALL:
            self._forget((group, tp))

    @rule(ms=st.sampled_from([1, 1000, RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)
        self.log.now_ms = self.world.now.wall_ms

    @rule()
    def expire(self) -> None:
        """Old offsets expire; tests/groups/test_offsets.py checks which."""
        before = dict(self.committed)
        drain(self.world.groups.expiring(self.world.now))
        self.world.settle()
        for group, tp in before:
            if self.world.committed(tp, group) is None:
                self._forget((group, tp))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(memory=MEMORY, rolls=st.booleans())
    def clean(self, memory: DedupeBuffer, rolls: bool) -> None:
        if rolls:
            self.log.roll()
        self.log.clean(memory)

    @rule(memory=MEMORY)
    def begin_round(self, memory: DedupeBuffer) -> None:
        self.log.begin_round(memory)

    @rule(steps=st.integers(1, 9))
    def go_on(self, steps: int) -> None:
        self.log.go_on(steps)

    @rule()
    def restart_coordinator(self) -> None:
        self.world = self.world.restarted()

    @rule(clean=st.booleans(), part=st.integers(0, 4))
    def restart_broker(self, clean: bool, part: int) -> None:
        self.log.restart(clean, self.log.model.leo * part // 4)
        self.world = self.world.restarted()

    @invariant()
    def compare(self) -> None:
        if self.coordinator_log is None:
            return
        for group in GROUPS:
            error, found = self.world.groups.fetch(group, ALL, require_stable=False)
            assert not error
            there = {tp: value.offset for tp, (value, _) in found.items() if value is not None}
            assert there == {tp: offset for (name, tp), (offset, _) in self.committed.items() if name == group}
            _, found = self.world.groups.fetch(group, ALL, require_stable=True)
            unstable = {tp for tp, (_, error) in found.items() if error is Error.UNSTABLE_OFFSET_COMMIT}
            assert unstable == {tp for offsets in self.open.values() for name, tp in offsets if name == group}

    def teardown(self) -> None:
        try:
            if self.coordinator_log is not None:
                self.log.compare()
                self.log.compare_files()
        finally:
            if self.coordinator_log is not None:
                self.log.close()
            shutil.rmtree(self.root)


def _run(examples: int, steps: int) -> None:
    quiet = [HealthCheck.too_slow]
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, suppress_health_check=quiet, report_multiple_bugs=False
    )
    run_state_machine_as_test(Machine, settings=chosen)


@pytest.mark.slow
@pytest.mark.timeout(900)  # hypothesis takes its time to find the shortest example of a fault
def test_compaction_and_reloads_keep_committed_offsets() -> None:
    _run(20, 40)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_compaction_and_reloads_keep_committed_offsets_in_many_histories() -> None:
    _run(300, 80)
