"""Rounds of random operations on any kind of log, compared with a model after each of them.

ODRADEK_MODEL_SEED and ODRADEK_MODEL_ROUNDS choose what the long test does: it says its seeds, and goes on for so many
rounds in all, each of a log's own for a hundred.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.protocol.records import codecs
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.storage.files import names

from ..harness import java
from .compaction.compaction_world import Producer, Row
from .log_world import LogWorld
from .test_death import _dies_at

KEYS = [b"a", b"b", b"c", b"", b"a key of more than sixteen bytes", None]
CODECS = [codecs.NONE] * 4 + [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD]
MEMORY = [DedupeBuffer(), DedupeBuffer(2 * ENTRY_BYTES, 1.0)]
DAY = 86_400_000
ROUNDS_EACH = 100
TOLD_ALL_THE_SAME = re.compile(
    r"log4j|Non-consecutive offsets in |\s*\d+ is followed by \d+$"
    r"|Found timestamp mismatch in |\s*Index timestamp: \d+, log timestamp: -1$"
)
"""Also of logs that Kafka's cleaner was at: a batch that it has emptied keeps its time in the time index."""


class Life:
    """One log. `round` runs an operation and compares."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        policy = rng.choice(["delete", "delete", "compact", "compact,delete"])
        self.compacts = "compact" in policy
        self.number = 0
        self.world = LogWorld(
            root, rng, segment_bytes=rng.choice([300, 600, 2000]), index_interval_bytes=rng.choice([60, 100, 400]),
            delete_retention_ms=rng.choice([0, 1000, DAY]), min_compaction_lag_ms=rng.choice([0, 0, 1000]),
            cleanup_policy=policy, retention_ms=3 * DAY, retention_bytes=rng.choice([-1, -1, 4000]),
        )  # fmt: skip

    def round(self) -> None:
        some: list[Callable[[], None]] = [self.send] * 4 + [self.transaction] * 4
        some += [self.send_idempotent, self.end, self.fence, self.retry, self.stale, self.roll, self.wait, self.trim]
        some += [self.retain, self.append_and_die, self.append_and_die, self.mark_and_die, self.roll_and_die]
        some += [self.trim_and_die, self.restart, self.restart, self.restart, self.as_coordinator]
        some += [self.truncate, self.truncate_and_die, self.lead]
        some += [self.clean, self.clean, self.clean_and_die, self.begin_round, self.go_on] if self.compacts else []
        step = self.rng.choice(some)
        self.world.say(step.__name__)
        step()
        self.world.note()
        self.world.compare()

    # --- producers

    def rows(self) -> list[Row]:
        made: list[Row] = []
        for _ in range(self.rng.randrange(1, 5)):
            self.number += 1
            key = self.rng.choice(KEYS)
            value = None if key is not None and self.rng.random() < 0.2 else b"%d" % self.number
            value = value and value + b"." * self.rng.randrange(90)
            made.append((key, value, self.rng.choice([(), (), ((b"h", b"1"), (b"h", None))])))
        return made

    def producer(self) -> Producer:
        return self.rng.choice(self.world.producers)

    def send(self) -> None:
        self.world.send(self.rows(), self.rng.choice(CODECS))

    def send_idempotent(self) -> None:
        producer = self.producer()
        self.world.send(self.rows(), self.rng.choice(CODECS), producer, inside=producer.id in self.world.model.open)

    def transaction(self) -> None:
        """A batch of one, maybe the last."""
        producer = self.producer()
        self.world.send(self.rows(), self.rng.choice(CODECS), producer, inside=True)
        if self.rng.random() < 0.3:
            self.world.roll()
        if self.rng.random() < 0.5:
            self.world.end(producer, self.rng.random() < 0.5)

    def as_coordinator(self) -> None:
        self.world.send_as_coordinator(self.rows(), self.producer())

    def end(self) -> None:
        self.world.end(self.producer(), self.rng.random() < 0.5)

    def fence(self) -> None:
        self.world.fence(self.producer())

    def retry(self) -> None:
        self.world.retry(self.producer())

    def stale(self) -> None:
        self.world.send_stale(self.producer())

    # --- administrators and time

    def roll(self) -> None:
        self.world.roll()

    def wait(self) -> None:
        self.world.now_ms += self.rng.choice([1, 500, 1000, DAY, 2 * DAY])

    def some_offset(self) -> int:
        """An offset below the last stable one."""
        return self.rng.randrange(self.world.model.log_start, self.world.model.lso + 1)

    def trim(self) -> None:
        self.world.delete_records(self.some_offset())

    def lead(self) -> None:
        self.world.lead()

    def some_end(self) -> int:
        """Behind all that the cleaner has seen."""
        model = self.world.model
        return self.rng.randrange(max(model.looked_leo, model.log_start), model.leo + 1)

    def truncate(self) -> None:
        self.world.truncate(self.some_end())

    def truncate_and_die(self) -> None:
        self.world.truncate_and_die(self.some_end(), *self.death())

    def retain(self) -> None:
        self.world.retain()

    def clean(self) -> None:
        if self.rng.random() < 0.5:
            self.world.roll()
        self.world.clean(self.rng.choice(MEMORY))

    def begin_round(self) -> None:
        self.world.begin_round(self.rng.choice(MEMORY))

    def go_on(self) -> None:
        self.world.go_on(self.rng.randrange(1, 9))

    # --- deaths

    def death(self) -> tuple[int, bool]:
        """At which call, and whether the broker goes with it."""
        return self.rng.randrange(self.rng.choice([12, 25, 60])), self.rng.random() < 0.3

    def append_and_die(self) -> None:
        producer = self.rng.choice([None, *self.world.producers])
        inside = producer is not None and (producer.id in self.world.model.open or self.rng.random() < 0.5)
        self.world.append_and_die(self.rows(), producer, inside, *self.death())

    def mark_and_die(self) -> None:
        if self.world.model.open:
            open_ = [one for one in self.world.producers if one.id in self.world.model.open]
            self.world.mark_and_die(self.rng.choice(open_), self.rng.random() < 0.5, *self.death())

    def roll_and_die(self) -> None:
        self.world.roll_and_die(*self.death())

    def trim_and_die(self) -> None:
        self.world.trim_and_die(self.some_offset(), *self.death())

    def clean_and_die(self) -> None:
        self.world.clean_and_die(self.rng.choice(MEMORY), _dies_at, self.rng.randrange(120))

    def restart(self) -> None:
        model = self.world.model
        point = self.rng.randrange(model.log_start, model.leo + 1)
        self.world.restart(self.rng.random() < 0.5, point, self.rng.choice([0, 1, 1, 2, 4]))
        for producer in self.world.producers:
            self.world.send_stale(producer)
            self.world.retry(producer)


def _live(root: Path, seed: int, rounds: int) -> LogWorld:
    """Run one life; AssertionError with all operations."""
    life = Life(root, seed)
    try:
        for _ in range(rounds):
            life.round()
    except BaseException as error:
        error.add_note(f"seed {seed}, {root}: " + "; ".join(life.world.said))
        raise
    finally:
        life.world.close()
    return life.world


def _dumped(directory: Path) -> None:
    """Apache Kafka's tool finds nothing wrong with the files."""
    kinds = (names.LOG, *names.INDEXES)
    paths = ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in kinds)
    for options in (["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
        done = java.run("3.9.1", "kafka.tools.DumpLogSegments", "--files", paths, *options)
        said = done.stderr.decode().splitlines()
        assert [line for line in said if not TOLD_ALL_THE_SAME.match(line)] == []
        for words in (b"isvalid: false", b"invalid bytes", b"Mismatches", b"Unreadable"):
            assert words not in done.stdout, done.stdout.decode()[-3000:]
    for path in directory.glob(f"*{names.SNAPSHOT}"):
        java.run("3.9.1", "kafka.tools.DumpLogSegments", "--files", str(path))


@pytest.mark.parametrize("turn", range(4))
def test_random_operations_follow_the_model(tmp_path: Path, turn: int) -> None:
    _live(tmp_path, random.randrange(1 << 32), ROUNDS_EACH)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_kafkas_tool_accepts_the_log_after_random_operations(tmp_path: Path) -> None:
    world = _live(tmp_path, random.randrange(1 << 32), ROUNDS_EACH)
    if not world.excused:
        _dumped(world.directory)


@pytest.mark.long
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(4 * 3600)
def test_random_operations_for_an_hour(tmp_path: Path) -> None:
    seed = int(os.environ.get("ODRADEK_MODEL_SEED", random.randrange(1 << 32)))
    rounds = int(os.environ.get("ODRADEK_MODEL_ROUNDS", 30_000))
    print("seed", seed, "rounds", rounds)
    for life in range(max(rounds // ROUNDS_EACH, 1)):
        root = tmp_path / str(life)
        root.mkdir()
        world = _live(root, seed + life, ROUNDS_EACH)
        if life % 10 == 0 and not world.excused:
            _dumped(world.directory)
        shutil.rmtree(root)
