"""Copies of logs, and the fetch requests for them."""

from __future__ import annotations

import time

import pytest

from odradek.broker.supervisor import stop_limits
from odradek.broker.supervisor.supervisor import helpers
from odradek.ipc import roles

from .leading import LEADER, LONG_POLL, OWN, Maker, PlayedLeader, caught_up


def test_copies_a_log_byte_by_byte(follow: Maker, leader: PlayedLeader) -> None:
    for count in (3, 1, 10):
        leader.append(count=count)
    follower = follow(**LONG_POLL)
    follower.turn_until(caught_up(follower, leader), "the leader's log end")
    leader.append(count=2)
    follower.turn_until(caught_up(follower, leader), "the leader's next batch")
    assert follower.content() == leader.log().content()
    assert follower.state().leo == 16
    assert (follower.count_of("messages_in"), follower.count_of("bytes_in")) == (16, len(follower.content()))
    assert follower.count_of("appends") == 2
    follower.turn_until(lambda: follower.count_of("fetch_requests") == len(leader.requests) == 3, "the delayed fetch")
    assert follower.count_of("connections") == leader.connections == 1


def test_asks_with_its_log_end_and_last_epoch(follow: Maker, leader: PlayedLeader) -> None:
    leader.log().epoch = 2
    leader.append(epoch=1)
    leader.append(epoch=2)
    follower = follow()
    follower.lead(0, LEADER, 2)
    follower.turn_until(lambda: len(leader.requests) >= 3, "a second fetch")
    first, second, third = ([part[2:6] for part in request.parts] for request in leader.requests[:3])
    assert first == [(2, 0, -1, 0)]
    assert second == [(2, 2, 2, 0)]
    assert third == [], "the fetch repeats unchanged partitions"
    assert leader.requests[0].replica == OWN
    assert [request.session_epoch for request in leader.requests[:3]] == [0, 1, 2]
    follower.lead(0, LEADER, 3)
    follower.turn_until(lambda: leader.requests[-1].parts and len(leader.requests) > 3, "a fetch in the next epoch")
    assert leader.requests[-1].parts[0][2:6] == (3, 2, 2, 0), "the fetch must have the last epoch of the checkpoint"


def test_records_are_on_their_way_within_the_turn(follow: Maker, leader: PlayedLeader) -> None:
    """The response to a delayed fetch is appended and the next fetch is sent in the same turn of the loop."""
    follower = follow(**LONG_POLL)
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    leader.append()
    while not caught_up(follower, leader)():
        follower.replicator.turn(1000)
    deadline = time.monotonic() + 60
    while len(leader.requests) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [part.offset for part in leader.requests[2].parts] == [1]


def test_many_partitions_share_a_connection(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=40)
    for index in range(40):
        for _ in range(index % 4):
            leader.append(index)
    follower.turn_until(caught_up(follower, leader, *range(40)), "all log ends")
    for index in range(40):
        assert follower.content(index) == leader.log(index).content()
    assert leader.connections == 1


def test_fetchers_spread_the_partitions(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(count=9, num_replica_fetchers=3)
    follower.turn_until(lambda: len(leader.first_epochs) == 3, "three connections")
    asked = [{part.partition for part in request.parts} for request in leader.requests if not request.session_epoch]
    assert sorted(map(len, asked)) == [3, 3, 3]
    assert set().union(*asked) == set(range(9))
    assert leader.connections == 3


def test_two_leaders(follow: Maker, leader: PlayedLeader) -> None:
    other = PlayedLeader()
    other.log(1).epoch = 1
    other.append(1, count=5)
    leader.append(0, count=3)
    follower = follow(count=2, leaders={LEADER: leader.address, 2: other.address})
    follower.lead(1, 2, 1)
    follower.turn_until(lambda: (follower.state(0).leo, follower.state(1).leo) == (3, 5), "both log ends")
    other.close()


def test_an_answer_larger_than_usual(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow(replica_fetch_response_max_bytes=1000, replica_fetch_max_bytes=1000)
    leader.append(value=b"y" * (3 << 20))
    leader.append()
    follower.turn_until(caught_up(follower, leader), "a batch of 3 MiB")
    assert follower.content() == leader.log().content()


def test_an_idle_fetch_names_no_partition_and_takes_no_lock(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = follow(count=300, replica_fetch_wait_max_ms=20)
    follower.turn_until(lambda: len(leader.requests) > 2, "the session")
    locked: list[int] = []
    monkeypatch.setattr("odradek.storage.log.partition.Partition.acquire", lambda self: locked.append(self.index))
    before = len(leader.requests)
    follower.turn_until(lambda: len(leader.requests) > before + 10, "idle fetches")
    assert all(not request.parts and not request.forgotten for request in leader.requests[before:])
    assert locked == []


def test_the_high_watermark_follows_the_leaders(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    leader.log().hw = 0
    leader.append(count=4)
    follower.turn_until(lambda: follower.state().leo == 4, "the records")
    assert follower.state().hw == 0
    for told, expected in ((2, 2), (100, 4), (3, 4)):
        leader.log().hw = told
        leader.changed()
        before = len(leader.requests)
        follower.turn_until(lambda before=before: len(leader.requests) >= before + 2, "the next fetch")  # type: ignore[misc]  # a default in a lambda
        assert follower.state().hw == expected


def test_the_log_start_follows_the_leaders(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    leader.append(count=4)
    follower.turn_until(caught_up(follower, leader), "the records")
    with leader.lock:
        leader.log().start = 4
    leader.append()
    follower.turn_until(lambda: follower.state().log_start == 4, "the log start")
    with leader.lock:
        leader.log().start = 5
    leader.changed()
    follower.turn_until(lambda: follower.state().log_start == 5, "the log start without records")
    follower.turn_until(
        lambda: [part.log_start for request in leader.requests for part in request.parts][-1] == 5, "a fetch that tells"
    )


def test_only_a_cluster_has_a_replicator() -> None:
    other = {"odradek.metrics.listener": "", "odradek.console.listener": ""}
    assert roles.REPLICATOR not in helpers({"zookeeper.connect": None, **other})
    assert roles.REPLICATOR not in helpers({"zookeeper.connect": "", **other})
    assert roles.REPLICATOR in helpers({"zookeeper.connect": "localhost:2181", **other})
    stages = list(stop_limits.ORDER)
    assert stages.index((roles.REPLICATOR,)) < stages.index((roles.JANITOR,))
    assert stages[stages.index((roles.REPLICATOR,)) - 1] != (roles.ACCEPTOR,)
