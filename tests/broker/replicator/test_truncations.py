"""Slow truncations: other partitions are fetched meanwhile, and truncations do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replicator import follower_log, truncations
from odradek.storage.log import truncate
from odradek.storage.log.partition import LockNotAvailable
from odradek.storage.segment.epochs import EpochCache

from .leading import LEADER, Follower, Maker, PlayedLeader, caught_up

COMMON, OWN = 3, 2000
PATIENCE_S = 15.0


class Slow:
    """Truncations of some partitions that block, with the lock, until the test releases them."""

    def __init__(self, *indexes: int) -> None:
        self.begun = {index: threading.Event() for index in indexes}
        self.go = {index: threading.Event() for index in indexes}
        self.in_time = True  # the awaited work was done before the release

    def cut(self, partition: Any, values: Any, offset: int) -> None:
        if partition.index in self.go:
            self.begun[partition.index].set()
            self.in_time &= self.go[partition.index].wait(PATIENCE_S)
        truncate.truncate(partition, values, offset)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(0, 1)
    monkeypatch.setattr(follower_log, "truncate", SimpleNamespace(truncate=made.cut))
    yield made
    for event in made.go.values():
        event.set()
    assert made.in_time, "a fetch waited for a truncation"


def diverged(follow: Maker, leader: PlayedLeader, *indexes: int) -> Follower:
    """A follower of four partitions; some of them have many records that the new leader does not have."""
    for index in range(4):
        for _ in range(COMMON):
            leader.append(index, epoch=0)
        leader.log(index).hw = COMMON
    for index in indexes:
        leader.append(index, count=OWN, epoch=1, value=b"never committed")
        leader.log(index).epoch = 1
    follower = follow(count=4)
    for index in indexes:
        follower.lead(index, LEADER, 1)
    ends = [COMMON + OWN if index in indexes else COMMON for index in range(4)]
    follower.turn_until(lambda: [follower.state(index).leo for index in range(4)] == ends, "the log ends")
    with leader.lock:
        for index in indexes:
            log = leader.log(index)
            del log.batches[COMMON:]
            log.epochs, log.epoch = EpochCache([(0, 0)]), 2
            log.append(count=3, value=b"the truth")
            log.hw = -1
    for index in indexes:
        follower.lead(index, LEADER, 2)
    return follower


def test_others_are_copied_while_one_is_truncated(follow: Maker, leader: PlayedLeader, slow: Slow) -> None:
    follower = diverged(follow, leader, 0)
    follower.turn_until(slow.begun[0].is_set, "the truncation")
    for index in (1, 2, 3):
        leader.append(index)
        leader.log(index).hw = -1
    follower.turn_until(caught_up(follower, leader, 1, 2, 3), "what comes in the others")
    assert follower.state(0).leo == COMMON + OWN
    slow.go[0].set()
    follower.turn_until(caught_up(follower, leader, 0), "what comes in the truncated one")
    assert follower.content(0) == leader.log(0).content()


def test_no_truncation_waits_for_another(follow: Maker, leader: PlayedLeader, slow: Slow) -> None:
    follower = diverged(follow, leader, 0, 1)
    follower.turn_until(lambda: slow.begun[0].is_set() and slow.begun[1].is_set(), "both truncations")
    slow.go[1].set()
    follower.turn_until(caught_up(follower, leader, 1), "the second one")
    assert follower.state(0).leo == COMMON + OWN
    slow.go[0].set()
    follower.turn_until(caught_up(follower, leader, 0, 1), "both")
    assert [follower.content(index) == leader.log(index).content() for index in (0, 1)] == [True, True]


def test_a_truncation_that_fails_is_tried_again(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follower, failures = diverged(follow, leader, 0), ["a fault of ours"]

    def failing(partition: Any, values: Any, offset: int) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        truncate.truncate(partition, values, offset)

    monkeypatch.setattr(follower_log, "truncate", SimpleNamespace(truncate=failing))
    follower.turn_until(caught_up(follower, leader, 0, 1, 2, 3), "all")
    assert follower.content(0) == leader.log(0).content()
    assert "a fault of ours" in caplog.text


def test_a_leadership_that_comes_meanwhile_waits_for_the_lock(follow: Maker, leader: PlayedLeader, slow: Slow) -> None:
    """The truncation uses the values of its own decision."""
    follower = diverged(follow, leader, 0)
    follower.turn_until(slow.begun[0].is_set, "the truncation")
    with pytest.raises(LockNotAvailable):
        follower.lead(0, LEADER, 3)
    slow.go[0].set()
    follower.turn_until(caught_up(follower, leader, 0), "what comes in the truncated one")
    with leader.lock:
        leader.log(0).epoch = 3
        leader.log(0).append()
    follower.lead(0, LEADER, 3)
    follower.turn_until(caught_up(follower, leader, 0), "what comes in the next epoch")
    assert follower.content(0) == leader.log(0).content()


def test_a_truncation_of_a_former_assignment_is_not_carried_out(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation waited for the lock; the same epoch's log was truncated and copied since, and must stay."""
    busy, go = threading.Event(), threading.Event()

    def wait(_seconds: float) -> None:
        busy.set()
        go.wait(PATIENCE_S)

    monkeypatch.setattr(truncations, "time", SimpleNamespace(sleep=wait))
    follower = diverged(follow, leader, 0)
    with follower.partition(0).locked():
        follower.turn_until(busy.is_set, "a truncation that waits for the lock")
        follower.leaders = {}
        follower.publish()
        follower.turn_until(lambda: not follower.replicator._leaders, "the end of the assignment")
    follower.leaders = {LEADER: leader.address}
    follower.publish()
    follower.turn_until(caught_up(follower, leader, 0), "what comes in the truncated one")
    go.set()
    follower.replicator._truncations._threads.shutdown()
    assert follower.state(0).leo == leader.log(0).end
    leader.append(0)
    follower.turn_until(caught_up(follower, leader, 0), "what comes behind it")
    assert follower.content(0) == leader.log(0).content()


def test_a_truncation_that_is_withdrawn_waits_for_the_lock_no_longer(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other truncations need its thread, and a lock may be held for as long as a disk takes."""
    busy, go, ended = threading.Event(), threading.Event(), threading.Event()
    end = truncations.Truncations._end

    def wait(_seconds: float) -> None:
        busy.set()
        go.wait(PATIENCE_S)

    def note(*arguments: Any) -> None:
        end(*arguments)
        ended.set()

    monkeypatch.setattr(truncations, "time", SimpleNamespace(sleep=wait))
    monkeypatch.setattr(truncations.Truncations, "_end", note)
    follower = diverged(follow, leader, 0)
    with follower.partition(0).locked():
        follower.turn_until(busy.is_set, "a truncation that waits for the lock")
        assert follower.partition(0).owner.shared.slots.contended(), "the slot is marked as contended"
        follower.leaders = {}
        follower.publish()
        follower.turn_until(lambda: not follower.replicator._leaders, "the end of the assignment")
        go.set()
        assert ended.wait(PATIENCE_S), "the cancelled truncation still waits"
