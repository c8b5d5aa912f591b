"""Queries by timestamp in steps, between which the log changes in every way that a leader's log can."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.ipc import slots
from odradek.protocol.records import batch_v2, codecs
from odradek.storage.log import timestamp_queries, trim, truncate
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition
from odradek.storage.log.timestamp_queries import MaxTimestamp, OffsetForTimestamp, TimestampQuery

from ...harness import effort
from ..compaction.compacting import Kept, compact, consume, keyed, seal
from ..live import NOW, Live, live, put

SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 150))]
SMALL = {"segment_bytes": 400, "index_interval_bytes": 100, "cleanup_policy": "compact", "delete_retention_ms": 0}


class Log:
    """A log that is written in one process and queried in another."""

    def __init__(self, world: Live, rng: random.Random) -> None:
        self._world = world
        self._dice = rng
        self._log = world.partition()
        self.asked = world.partition(1)
        self.written: dict[int, int] = {}  # timestamps by offset

    def write(self) -> None:
        """A batch of some records, whose times do not rise."""
        rows = [(self._dice.choice([b"a", b"b", b"c", b"d", b"e"]), b"x" * 20) for _ in range(self._dice.randint(1, 4))]
        batch = keyed(rows, timestamp=NOW + self._dice.randrange(1000), codec=self._dice.choice([0, codecs.LZ4]))
        put(self._log, batch)
        first = batch.max_timestamp - len(rows) + 1
        self.written |= {batch.base_offset + n: first + n for n in range(len(rows))}

    def change(self) -> None:
        """A change of a log."""
        match self._dice.randrange(8):
            case 0:
                with self._log.locked() as values:
                    upto = self._dice.randint(values[slots.F_LOG_START], values[slots.F_HW])
                    trim.advance(self._log, values, upto)
            case 1:
                seal(self._log)
            case 2 | 3:
                seal(self._log)
                compact(self._log, self._world)
            case _:
                self.write()

    def there(self) -> list[Kept]:
        """What a consumer may read."""
        return consume(self._log)


def ask(log: Log, question: TimestampQuery, changes: int, rng: random.Random) -> None:
    """Query until there is an answer; the log changes that often between the steps."""
    for number in range(100_000):
        values = log.asked.slot.read()
        try:
            if question.step(log.asked, values, values[slots.F_HW]):
                return
        except FileNotFoundError:
            log.asked.close_files()
        for _ in range(rng.randrange(3) if number < changes else 0):
            log.change()
    raise AssertionError("not answered")


@contextmanager
def filled(folder: Path, rng: random.Random) -> Iterator[Log]:
    """A log with some records."""
    with live(folder, **SMALL) as world:
        log = Log(world, rng)
        for _ in range(30):
            log.write()
        yield log


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as there can be."""
    for name in ("SEGMENTS", "BATCHES", "RECORDS"):
        monkeypatch.setattr(timestamp_queries, name, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("single")
def test_first_record_not_older_than_a_timestamp(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with filled(tmp_path, rng) as log:
        for _ in range(5):
            wanted, before = NOW + rng.randrange(-1, 1010), {one.offset for one in log.there()}
            question = OffsetForTimestamp(wanted)
            ask(log, question, rng.choice([0, 5, 50]), rng)
            candidates = [one.offset for one in log.there() if one.timestamp >= wanted]
            if question.found is None:
                assert not before.intersection(candidates)
            else:
                found = question.found
                assert log.written[found.offset] == found.timestamp >= wanted
                assert not [offset for offset in candidates if offset < found.offset]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("single")
def test_record_with_the_largest_timestamp(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with filled(tmp_path, rng) as log:
        for _ in range(5):
            before = {one.offset for one in log.there()}
            question = MaxTimestamp()
            ask(log, question, rng.choice([0, 5, 50]), rng)
            stayed = [one.timestamp for one in log.there() if one.offset in before]
            if question.found is None:
                assert not stayed
            else:
                found = question.found
                assert log.written[found.offset] == found.timestamp >= max(stayed, default=0)


class Case(NamedTuple):
    """A log that makes a query long."""

    batches: int
    records: int
    segments: bool


def fill(partition: Partition, case: Case) -> None:
    """A log of which the first record is the newest but for the last."""
    for number in range(case.batches):
        stamp = NOW + (1000 if not number else 2000 if number == case.batches - 1 else 0)
        rows = [(n, stamp + n // (case.records - 1 or 1), b"k", b"v", ()) for n in range(case.records)]
        data = bytearray(batch_v2.build(rows, base_offset=0, codec=codecs.GZIP))
        put(partition, Batch(memoryview(data), case.records, rows[-1][1], -1, -1, -1))
        if case.segments:
            seal(partition)


@pytest.mark.parametrize(
    ("case", "question"),
    [
        (Case(1000, 1, True), OffsetForTimestamp(NOW + 1500)),
        (Case(1000, 1, True), MaxTimestamp()),
        (Case(20_000, 1, False), OffsetForTimestamp(NOW + 1500)),
        (Case(1, 100_000, False), MaxTimestamp()),
    ],
    ids=["segments", "segments of the newest", "batches", "records"],
)
def test_each_step_of_a_query_is_bounded(tmp_path: Path, case: Case, question: TimestampQuery) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        fill(partition, case)
        values, found, answered = partition.slot.read(), list[int](), list[bool]()
        partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
        while not any(answered):
            found.append(effort.lines(lambda: answered.append(question.step(partition, values, values[slots.F_HW]))))
        assert question.found is not None
        assert question.found.offset == case.batches * case.records - 1
        assert max(found) * 5 < sum(found)


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.usefixtures("single")
def test_truncation_restarts_a_query(tmp_path: Path, epoch: int) -> None:
    """Newer records may be below the offset that it has reached; the log end is lower, or another epoch has begun."""
    with live(tmp_path) as world:
        partition, question = world.partition(), OffsetForTimestamp(NOW + 5)
        for _ in range(3):
            put(partition, keyed([(b"k", b"old")]))
            seal(partition)
        for _ in range(2):
            assert not question.step(partition, partition.slot.read(), 3)
        with partition.locked() as values:
            truncate.truncate(partition, values, 1)
            partition.slot.publish(partition.state()._replace(leader_epoch=epoch))
        for stamp in (NOW + 5, *([NOW] * 5 * epoch)):
            put(partition, keyed([(b"k", b"new")], timestamp=stamp))
        while not question.step(partition, partition.slot.read(), partition.state().leo):
            pass
        assert question.found is not None and question.found.offset == 1


@pytest.mark.parametrize("epoch", [-1, -2, 0])
@pytest.mark.parametrize("question", [OffsetForTimestamp(NOW), MaxTimestamp()], ids=["time", "newest"])
@pytest.mark.usefixtures("single")
def test_query_in_any_leader_epoch(tmp_path: Path, question: TimestampQuery, epoch: int) -> None:
    """LeaderAndIsr may name one that no controller gives out."""
    with live(tmp_path) as world:
        partition = world.partition()
        put(partition, keyed([(b"k", b"v")]))
        with partition.locked():
            partition.slot.publish(partition.state()._replace(leader_epoch=epoch))
        while not question.step(partition, partition.slot.read(), 1):
            pass
        assert question.found is not None and question.found.offset == 0
