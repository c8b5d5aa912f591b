"""Logs that diverge from the leader's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replicator import follower_log
from odradek.protocol import errors
from odradek.storage.log import truncate
from odradek.storage.segment.epochs import FILE_NAME, EpochCache

from .leading import LEADER, TOPIC_ID, Maker, PlayedLeader, caught_up

KEY = (TOPIC_ID, 0)


def test_diverged_log_is_truncated_at_the_divergence(follow: Maker, leader: PlayedLeader) -> None:
    """Three common batches of epoch 0, then two different ones each; the former leader's were never committed."""
    for _ in range(3):
        leader.append(epoch=0)
    leader.log().hw = 3
    for _ in range(2):
        leader.append(epoch=1, value=b"never committed")
    leader.log().epoch = 1
    follower = follow()
    follower.lead(0, LEADER, 1)
    follower.turn_until(lambda: follower.state().leo == 5, "the log end")
    with leader.lock:
        log = leader.log()
        del log.batches[3:]
        log.epochs, log.epoch = EpochCache([(0, 0)]), 2
        log.append(count=3, value=b"the truth")
        log.hw = -1
    follower.lead(0, LEADER, 2)
    follower.turn_until(caught_up(follower, leader), "the new leader's log end")
    assert follower.content() == leader.log().content()
    assert [tuple(one) for one in EpochCache.read(follower.partition().directory).entries] == [(0, 0), (2, 3)]
    assert not leader.sought


def test_truncation_below_the_high_watermark_is_logged(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.append(count=1)
    leader.append(count=4, epoch=1)
    leader.log().epoch = 1
    follower = follow()
    follower.lead(0, LEADER, 1)
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        log = leader.log()
        del log.batches[1:]
        log.epochs, log.epoch = EpochCache([(0, 0)]), 2
        log.append(count=1, value=b"an unclean leader's")
    follower.lead(0, LEADER, 2)
    follower.turn_until(lambda: follower.content() == leader.log().content(), "the new leader's log")
    assert (follower.state().leo, follower.state().hw) == (2, 2)
    assert "t-0: truncated to offset 1, below the high watermark 5" in caplog.text


def test_a_log_beyond_the_leaders_is_cut(follow: Maker, leader: PlayedLeader) -> None:
    """The same epoch, fewer records, no epochs: the leader has lost the last writes of its disk."""
    for _ in range(5):
        leader.append()
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        leader.log().epoch = 1
        del leader.log().batches[2:]
    follower.lead(0, LEADER, 1)
    follower.turn_until(lambda: follower.content() == leader.log().content(), "the leader's log")
    assert follower.state().leo == 2
    leader.append()
    follower.turn_until(caught_up(follower, leader), "the next batch")


def test_log_that_ends_before_the_leaders_start_is_reset(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.append(count=5)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    with leader.lock:
        log = leader.log()
        log.append(count=100)
        log.append(count=7)
        log.start = 105
        del log.batches[:2]
        log.error = errors.NOT_LEADER_OR_FOLLOWER
    follower.turn_until(lambda: KEY in leader.requests[-1].forgotten or not leader.requests[-1].parts, "a pause")
    leader.log().error = 0
    follower.turn_until(lambda: follower.state().leo == 112, "the log end")
    assert follower.state().log_start == 105
    assert follower.content() == leader.log().content()


def test_out_of_range_offset_is_looked_up_at_the_leader(follow: Maker, leader: PlayedLeader) -> None:
    """The log is empty and its epoch is unknown to the leader, and the leader's log starts at a higher offset."""
    with leader.lock:
        leader.log().start = 50
    leader.append(count=3)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert leader.sought == [-1, -2]
    assert (follower.state().log_start, follower.state().leo) == (50, 53)


@pytest.mark.parametrize("failures", [0, 1])
def test_a_log_of_unknown_epochs_is_cut_to_its_high_watermark_before_it_is_fetched(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Without epochs, no leader can find the divergence. A failed truncation is retried."""
    left = [OSError("no luck")] * failures

    def cut(partition: Any, values: Any, offset: int) -> None:
        if left:
            raise left.pop()
        truncate.truncate(partition, values, offset)

    monkeypatch.setattr(follower_log, "truncate", SimpleNamespace(truncate=cut))
    leader.append(count=3)
    leader.log().hw = 3
    leader.append(count=2, value=b"never committed")
    follower = follow()
    follower.turn_until(lambda: (follower.state().leo, follower.state().hw) == (5, 3), "the log end")
    (Path(follower.partition().directory) / FILE_NAME).unlink()
    with leader.lock:
        log = leader.log()
        del log.batches[1:]
        log.epoch, log.hw = 1, -1
        log.append(count=2, value=b"the truth")
        log.append(count=2, value=b"and more")
    follower.lead(0, LEADER, 1)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


def test_a_log_that_ends_elsewhere_than_was_asked_for_gets_no_gap(follow: Maker, leader: PlayedLeader) -> None:
    """Another process has repaired the log, and so completed a truncation that had failed here."""
    for _ in range(5):
        leader.append()
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    with follower.partition().locked() as values:
        truncate.truncate(follower.partition(), values, 3)
    leader.append()
    follower.turn_until(caught_up(follower, leader), "the next batch")
    assert follower.content() == leader.log().content()
