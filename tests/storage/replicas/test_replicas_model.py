"""Rounds of random operations on three replicas of a log, each with its own files, cleaner, retention and deaths.

ODRADEK_MODEL_SEED and ODRADEK_MODEL_ROUNDS choose what the long test does.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.records import codecs
from odradek.storage.compaction.compaction import DedupeBuffer
from odradek.storage.compaction.offset_map import ENTRY_BYTES

from ..compaction.compaction_world import Row
from .cluster import Replicas

KEYS = [b"a", b"b", b"c", b"", b"a key of more than sixteen bytes", None]
CODECS = [codecs.NONE] * 4 + [codecs.GZIP, codecs.ZSTD]
MEMORY = [DedupeBuffer(), DedupeBuffer(2 * ENTRY_BYTES, 1.0)]
DAY = 86_400_000
ROUNDS_EACH = 120


class Life:
    """One topic partition. `round` runs an operation."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        policy = rng.choice(["delete", "compact", "compact,delete"])
        self.compacts = "compact" in policy
        self.number = 0
        flips = rng.random() < 0.4
        self.flips: list[Callable[[], None]] = [self.configure] * 2 if flips else []
        more: dict[str, Any] = {"producers_max": 4} if rng.random() < 0.2 else {}
        self.said: list[str] = []
        self.world = Replicas(
            root, rng, segment_bytes=rng.choice([300, 600, 2000]), index_interval_bytes=rng.choice([60, 100, 400]),
            delete_retention_ms=DAY, cleanup_policy=policy,
            retention_ms=rng.choice([10_000, DAY]) if not self.compacts else DAY,
            retention_bytes=rng.choice([-1, 2000]) if not self.compacts else -1, **more,
        )  # fmt: skip

    def round(self) -> None:
        some: list[Callable[[], None]] = [self.send] * 4 + [self.transaction] * 4 + [self.fetch] * 10
        some += [self.send_idempotent, self.end, self.fence, self.retry, self.roll, self.wait, self.drop]
        some += [self.elect, self.elect, self.restart, self.restart, self.fetch_and_die, self.fetch_and_die]
        some += [self.as_coordinator, self.delete_records, self.compare, self.flush]
        some += [self.clean, self.clean] if self.compacts else [self.retain]
        some += [self.clean, self.retain, *self.flips] if self.flips else [self.expire][: self.rng.random() < 0.5]
        step = self.rng.choice(some)
        self.said.append(step.__name__)
        step()

    def rows(self) -> list[Row]:
        made: list[Row] = []
        for _ in range(self.rng.randrange(1, 5)):
            self.number += 1
            key = self.rng.choice(KEYS)
            value = None if key is not None and self.rng.random() < 0.2 else b"%d" % self.number
            value = value and value + b"." * self.rng.randrange(90)
            made.append((key, value, ()))
        return made

    def producer(self) -> int:
        return self.rng.randrange(len(self.world.now.producers))

    def anyone(self) -> int:
        return self.rng.randrange(3)

    def send(self) -> None:
        self.world.send(self.rows(), self.rng.choice(CODECS), None, False)

    def send_idempotent(self) -> None:
        one = self.world.now.producers[self.producer()]
        self.world.send(self.rows(), self.rng.choice(CODECS), one, one.id in self.world.truth.open)

    def transaction(self) -> None:
        one = self.world.now.producers[self.producer()]
        self.world.send(self.rows(), self.rng.choice(CODECS), one, True)
        if self.rng.random() < 0.3:
            self.world.leader.roll()
        if self.rng.random() < 0.5:
            self.world.end(one, self.rng.random() < 0.5)

    def as_coordinator(self) -> None:
        self.world.send_as_coordinator(self.rows(), self.world.now.producers[self.producer()])

    def end(self) -> None:
        self.world.end(self.world.now.producers[self.producer()], self.rng.random() < 0.5)

    def fence(self) -> None:
        self.world.fence(self.world.now.producers[self.producer()])

    def retry(self) -> None:
        self.world.retry(self.world.now.producers[self.producer()])

    def roll(self) -> None:
        self.world.replicas[self.anyone()].roll()

    def flush(self) -> None:
        self.world.replicas[self.anyone()].flush()

    def wait(self) -> None:
        self.world.now_ms += self.rng.choice([1, 500, 20_000])

    def drop(self) -> None:
        self.world.drop(self.anyone())

    def elect(self) -> None:
        self.world.elect(self.anyone())

    def restart(self) -> None:
        self.world.restart(self.anyone(), self.rng.random() < 0.5)

    def fetch(self) -> None:
        number = self.anyone()
        for _ in range(self.rng.choice([1, 1, 3])):
            self.world.fetch(number, self.rng.choice([1, 300, 1 << 20]))

    def fetch_and_die(self) -> None:
        die = self.rng.randrange(self.rng.choice([12, 25, 60]))
        self.world.fetch(self.anyone(), self.rng.choice([300, 1 << 20]), die, self.rng.random() < 0.3)

    def delete_records(self) -> None:
        self.world.delete_records()

    def retain(self) -> None:
        one = self.world.replicas[self.anyone()]
        before = one.log_start
        self.world.done["retain"] += one.retain(self.world.now_ms) > before

    def clean(self) -> None:
        self.world.clean(self.anyone(), self.rng.choice(MEMORY))

    def configure(self) -> None:
        self.world.configure(self.anyone())

    def expire(self) -> None:
        self.world.expire(self.anyone())

    def compare(self) -> None:
        self.world.compare()


def _live(root: Path, seed: int, rounds: int) -> Counter[str]:
    """Run one life; AssertionError with all operations."""
    life = Life(root, seed)
    try:
        for _ in range(rounds):
            life.round()
        life.said.append("the last comparison")
        life.world.compare()
    except BaseException as error:
        error.add_note(f"seed {seed}, {root}: " + "; ".join(life.said))
        raise
    finally:
        life.world.close()
    return life.world.done


@pytest.mark.parametrize("turn", range(3))
def test_replicas_follow_the_model(tmp_path: Path, turn: int) -> None:
    _live(tmp_path, random.randrange(1 << 32), ROUNDS_EACH)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_replicas_for_long(tmp_path: Path) -> None:
    seed = int(os.environ.get("ODRADEK_MODEL_SEED", random.randrange(1 << 32)))
    rounds = int(os.environ.get("ODRADEK_MODEL_ROUNDS", 30_000))
    print("seed", seed, "rounds", rounds)
    done: Counter[str] = Counter()
    for life in range(max(rounds // ROUNDS_EACH, 1)):
        root = tmp_path / str(life)
        root.mkdir()
        done += _live(root, seed + life, ROUNDS_EACH)
        shutil.rmtree(root)
    print(dict(done))
    wanted = ("send", "marker", "diverged", "elect", "expire", "configure", "clean", "retain", "retry")
    assert not [what for what in wanted if not done[what]]
