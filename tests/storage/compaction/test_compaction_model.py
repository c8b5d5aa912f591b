"""Many rounds of the cleaner, with every other operation on a log between them, against a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from odradek.protocol.records import codecs
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.compaction.offset_map import ENTRY_BYTES

from ..test_death import _dies_at
from .compaction_world import Row, World

KEYS = [b"a", b"b", b"c", b"", b"a key of more than sixteen bytes"]
CODECS = st.sampled_from([codecs.NONE] * 3 + [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
HEADERS = st.sampled_from([()] * 3 + [((b"h", b"1"), (b"h", None))])
ROWS = st.lists(
    st.tuples(st.sampled_from([*KEYS, *KEYS, None]), st.none() | st.integers(0, 90), HEADERS), min_size=1, max_size=4
)
PRODUCERS = st.integers(0, 2)
MEMORY = st.sampled_from([DedupeBuffer(), DedupeBuffer(), DedupeBuffer(2 * ENTRY_BYTES, 1.0)])
DAY = 86_400_000


class Machine(RuleBasedStateMachine):
    """See the module's head. Values are numbered, so that none can stand for another."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="odradek-compaction-"))
        self.number = 0
        self.world: World | None = None

    @initialize(
        segment_bytes=st.sampled_from([300, 600, 2000]),
        retention=st.sampled_from([0, 1000, DAY]),
        lag=st.sampled_from([0, 0, 1000]),
        policy=st.sampled_from(["compact", "compact", "compact,delete"]),
    )
    def begin(self, segment_bytes: int, retention: int, lag: int, policy: str) -> None:
        self.world = World(
            self.root, segment_bytes=segment_bytes, index_interval_bytes=100, delete_retention_ms=retention,
            min_compaction_lag_ms=lag, cleanup_policy=policy, retention_ms=3 * DAY,
        )  # fmt: skip

    @property
    def log(self) -> World:
        assert self.world is not None
        return self.world

    def rows(self, drawn: list[tuple[bytes | None, int | None, Any]]) -> list[Row]:
        """Rows with values of their own; those without a key have one."""
        made: list[Row] = []
        for key, size, headers in drawn:
            self.number += 1
            value = None if size is None and key is not None else b"%d" % self.number + b"." * (size or 0)
            made.append((key, value, headers))
        return made

    @rule(rows=ROWS, codec=CODECS)
    def send(self, rows: Any, codec: int) -> None:
        self.log.send(self.rows(rows), codec)

    @rule(rows=ROWS, codec=CODECS, number=PRODUCERS)
    def send_idempotent(self, rows: Any, codec: int, number: int) -> None:
        producer = self.log.producers[number]
        self.log.send(self.rows(rows), codec, producer, inside=producer.id in self.log.model.open)

    @rule(rows=ROWS, codec=CODECS, number=PRODUCERS)
    def send_in_transaction(self, rows: Any, codec: int, number: int) -> None:
        self.log.send(self.rows(rows), codec, self.log.producers[number], inside=True)

    @rule(rows=ROWS, number=PRODUCERS)
    def send_as_coordinator(self, rows: Any, number: int) -> None:
        self.log.send_as_coordinator(self.rows(rows), self.log.producers[number])

    @rule(number=PRODUCERS, commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        self.log.end(self.log.producers[number], commit)

    @rule(rows=ROWS, number=PRODUCERS, commit=st.booleans(), rolls=st.booleans())
    def whole_transaction(self, rows: Any, number: int, commit: bool, rolls: bool) -> None:
        producer = self.log.producers[number]
        self.log.send(self.rows(rows), 0, producer, inside=True)
        if rolls:
            self.log.roll()
        self.log.end(producer, commit)

    @rule(number=PRODUCERS)
    def fence(self, number: int) -> None:
        self.log.fence(self.log.producers[number])

    @rule(number=PRODUCERS)
    def retry(self, number: int) -> None:
        self.log.retry(self.log.producers[number])

    @rule(number=PRODUCERS)
    def send_stale(self, number: int) -> None:
        self.log.send_stale(self.log.producers[number])

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(part=st.integers(0, 4))
    def delete_records(self, part: int) -> None:
        model = self.log.model
        self.log.delete_records(model.log_start + (model.lso - model.log_start) * part // 4)

    @rule()
    def retain(self) -> None:
        self.log.retain()

    @rule(ms=st.sampled_from([1, 500, 1000, DAY, 2 * DAY]))
    def wait(self, ms: int) -> None:
        self.log.now_ms += ms

    @rule(memory=MEMORY, rolls=st.booleans())
    def clean(self, memory: DedupeBuffer, rolls: bool) -> None:
        if rolls:
            self.log.roll()
        self.log.clean(memory)
        self.log.compare_files()

    @rule(memory=MEMORY)
    def begin_round(self, memory: DedupeBuffer) -> None:
        self.log.begin_round(memory)

    @rule(steps=st.integers(1, 9))
    def go_on(self, steps: int) -> None:
        self.log.go_on(steps)

    @rule(memory=MEMORY, step=st.integers(0, 120))
    def clean_and_die(self, memory: DedupeBuffer, step: int) -> None:
        self.log.clean_and_die(memory, _dies_at, step)
        self.log.compare_files()

    @rule(memory=MEMORY, call=st.integers(0, 40))
    def clean_refused(self, memory: DedupeBuffer, call: int) -> None:
        self.log.clean_refused(memory, call)
        self.log.compare_files()

    @rule(policy=st.sampled_from(["compact", "delete", "compact,delete"]))
    def change_policy(self, policy: str) -> None:
        self.log.configure(cleanup_policy=policy)

    @rule(part=st.integers(0, 4))
    def truncate(self, part: int) -> None:
        self.log.truncate(part)
        self.log.compare_files()

    @rule(text=st.sampled_from(["", "0\n0\n", "no checkpoint", "0\n1\nt 0 999999999\n", "0\n1\nt 0 -5\n"]))
    def spoil_checkpoint(self, text: str) -> None:
        self.log.spoil_checkpoint(text)

    @rule(clean=st.booleans(), part=st.integers(0, 4))
    def restart(self, clean: bool, part: int) -> None:
        model = self.log.model
        self.log.restart(clean, model.log_start + (model.leo - model.log_start) * part // 4)
        for producer in self.log.producers:
            self.log.send_stale(producer)
            self.log.retry(producer)

    @invariant()
    def compare(self) -> None:
        if self.world is not None:
            self.log.compare()

    def teardown(self) -> None:
        try:
            if self.world is not None:
                self.log.give_up()
                self.log.compare_files()
        finally:
            if self.world is not None:
                self.world.close()
            shutil.rmtree(self.root)


_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def _run(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, suppress_health_check=_QUIET, report_multiple_bugs=False
    )
    run_state_machine_as_test(Machine, settings=chosen)


@pytest.mark.slow
@pytest.mark.timeout(900)  # hypothesis needs long to find the shortest example of a fault
def test_many_rounds() -> None:
    _run(25, 40)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_more_rounds() -> None:
    _run(300, 80)
