"""Fetch responses with errors."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.cluster.replication import partition_fetch_states
from odradek.protocol import errors
from odradek.storage.log import append_as_follower

from .leading import TOPIC_ID, Jump, Maker, PlayedLeader, caught_up

HOUR_MS = 3_600_000


@pytest.mark.parametrize("error", [errors.NOT_LEADER_OR_FOLLOWER, errors.UNKNOWN_TOPIC_ID, errors.KAFKA_STORAGE_ERROR])
def test_partition_in_error_is_paused(
    follow: Maker, leader: PlayedLeader, jump: Jump, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(partition_fetch_states, "FIRST_DELAY_MS", HOUR_MS)
    follower = follow(count=2, replica_fetch_backoff_ms=HOUR_MS, replica_socket_timeout_ms=2 * HOUR_MS)
    leader.log(0).error = error
    leader.append(0)
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    left_out = lambda: any((TOPIC_ID, 0) in request.forgotten for request in leader.requests)  # noqa: E731
    follower.turn_until(left_out, "a fetch of the other partition alone")
    leader.log(0).error = 0
    jump(HOUR_MS // 2)
    for _ in range(3):
        leader.append(1)
        follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    assert follower.state(0).leo == 0
    jump(HOUR_MS // 2)
    follower.turn_until(caught_up(follower, leader, 0), "the log end")
    assert leader.connections == 1


def test_new_metadata_end_the_pause(follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_fetch_states, "FIRST_DELAY_MS", HOUR_MS)
    follower = follow(count=2, replica_fetch_backoff_ms=HOUR_MS)
    leader.log().error = errors.NOT_LEADER_OR_FOLLOWER
    leader.append()
    left_out = lambda: any((TOPIC_ID, 0) in request.forgotten for request in leader.requests)  # noqa: E731
    follower.turn_until(left_out, "a fetch of the other partition alone")
    leader.log().error = 0
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_corrupt_records_are_not_appended(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        leader.append()
    first, end, sound = leader.log().batches[1]
    leader.log().batches[1] = (first, end, sound[:-1] + b"?")
    follower = follow()
    follower.turn_until(lambda: follower.count_of("errors") == 2, "two attempts")
    assert follower.state().leo == 1, "records before the corrupt ones must be appended"
    assert "retrying in 200 ms" in caplog.text
    assert "retrying in 400 ms" in caplog.text
    leader.log().batches[1] = (first, end, sound)
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    with leader.lock:  # otherwise the delayed fetch returns before the batch is corrupt
        leader.append()
        first, end, sound = leader.log().batches[3]
        leader.log().batches[3] = (first, end, sound[:-1] + b"?")
    follower.turn_until(lambda: follower.count_of("errors") > 2, "another attempt")
    assert caplog.text.count("retrying in 200 ms") == 2, "the pause must start at its minimum again"


def test_a_session_that_the_leader_forgets(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    for error in (errors.FETCH_SESSION_ID_NOT_FOUND, errors.INVALID_FETCH_SESSION_EPOCH):
        leader.session_error = error
        leader.append()
        follower.turn_until(caught_up(follower, leader), "the log end")
        leader.append()
        follower.turn_until(caught_up(follower, leader), "the log end after it")
    assert sum(not request.session_epoch for request in leader.requests) == 3
    assert leader.connections == 1


def test_exception_in_one_log_affects_no_other(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, faults = append_as_follower.append, [ValueError("a fault of ours")]

    def append(partition: Any, *arguments: Any) -> int:
        if partition.index == 0 and faults:
            raise faults.pop()
        return real(partition, *arguments)

    monkeypatch.setattr(append_as_follower, "append", append)
    follower = follow(count=2)
    leader.append(0)
    leader.append(1)
    follower.turn_until(caught_up(follower, leader, 1), "the other's log end")
    follower.turn_until(caught_up(follower, leader, 0), "the log end")
    assert "a fault of ours" in caplog.text
    assert follower.count_of("errors") == 1
