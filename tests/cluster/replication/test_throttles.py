"""The bytes that a throttle admits in any order of events, and the meaning of its configs."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.configs import configdef
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.cluster.replication import throttles
from odradek.cluster.replication.throttles import ALL, FOLLOWER, LEADER, QuotaWindow, Throttle, partitions, window
from odradek.ipc import roles
from odradek.ipc.traffic import SAMPLES, WORDS, Traffic

WORKERS = [roles.FIRST_WORKER, roles.FIRST_WORKER + 1, roles.ROLES - 1]
WINDOWS = st.builds(QuotaWindow, st.integers(1, SAMPLES), st.sampled_from([1, 10, 1000]))


def traffic() -> Traffic:
    return Traffic(memoryview(array("q", [0]) * WORDS), 0)


def throttle(rate: int, over: QuotaWindow, counts: Traffic, own: int = WORKERS[0]) -> Throttle:
    return Throttle({"t": frozenset({0})}, rate, over, counts, LEADER.roles, own)


# -- the rate


@given(
    WINDOWS, st.integers(0, 5000),
    st.lists(st.tuples(st.sampled_from(WORKERS), st.integers(1, 10_000), st.integers(0, 3000)), min_size=1),
)  # fmt: skip
def test_workers_share_one_throttle(over: QuotaWindow, rate: int, sent: list[tuple[int, int, int]]) -> None:
    """The model applies the rule to a list of all sent bytes: the samples of the window from the first used one on."""
    counts, now_ms = traffic(), 1_000_000
    all_of_them = {role: throttle(rate, over, counts, role) for role in WORKERS}
    events: list[tuple[int, int]] = []
    for role, size, pause_ms in sent:
        now_ms += pause_ms
        all_of_them[role].count(size, now_ms)
        events.append((now_ms // over.width_ms, size))
        now_ms += 1  # the finding of another process holds for a ms
        recent = [(n, s) for n, s in events if n > now_ms // over.width_ms - over.samples]
        elapsed = max([over.width_ms, *(now_ms - n * over.width_ms for n, _ in recent)])
        exceeded = sum(s for _, s in recent) * 1000 / elapsed > rate
        assert [one.exceeded(now_ms) for one in all_of_them.values()] == [exceeded] * len(WORKERS)


@given(st.integers(1, 11), st.integers(500, 5000), st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 400))))
def test_sender_never_exceeds_rate(samples: int, rate: int, attempts: list[tuple[int, int]]) -> None:
    """In any window at most the rate, plus the last admitted piece."""
    over, counts, now_ms = QuotaWindow(samples, 1000), traffic(), 50_000
    one, sent = throttle(rate, over, counts), []
    for size, pause_ms in attempts * 5:
        now_ms += pause_ms
        if not one.exceeded(now_ms):
            one.count(size, now_ms)
            sent.append((now_ms // 1000, size))
    for last, _ in sent:
        moved = sum(size for number, size in sent if last - samples < number <= last)
        assert moved <= rate * samples + 2000


@settings(max_examples=30)
@given(st.integers(100, 5000), st.integers(1, 500), st.integers(30, 100))
def test_busy_sender_reaches_rate(rate: int, size: int, pause_ms: int) -> None:
    one, start, moved = throttle(rate, QuotaWindow(11, 1000), traffic()), 50_000, 0
    for now_ms in range(start, start + 30_000, pause_ms):
        if not one.exceeded(now_ms):
            one.count(size, now_ms)
            moved += size
    possible = min(rate, size * 1000 / pause_ms) * 30
    assert 0.8 * possible <= moved <= rate * 33 + size


def test_excess_ends_after_the_window() -> None:
    one = throttle(1000, QuotaWindow(11, 1000), traffic())
    one.count(1_000_000, 100_500)
    assert [one.exceeded(at) for at in (100_500, 101_000, 110_999)] == [True] * 3
    assert not one.exceeded(111_000)


def test_count_continues_within_one_ms() -> None:
    one = throttle(1000, QuotaWindow(11, 1000), traffic())
    one.count(1000, 100_000)
    assert not one.exceeded(100_000)
    one.count(1, 100_000)
    assert one.exceeded(100_000)


# -- configs


def test_window_of_many_samples_is_merged_into_fewer() -> None:
    keys = ("replication.quota.window.num", "replication.quota.window.size.seconds")
    assert window(dict(zip(keys, (11, 1), strict=True))) == QuotaWindow(11, 1000)
    long = window(dict(zip(keys, (100, 2), strict=True)))
    assert (long.samples, long.samples * long.width_ms) == (SAMPLES, 200_000)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*", ALL), (" * ", ALL), ("", set()), ("0:1,2:1, 3:1 ,4:11,1:2", {0, 2, 3}), (",0:1,", {0}),
        ("none", set()), ("x:1,1:,:1", set()),
    ],
)  # fmt: skip
def test_throttled_replicas_select_partitions(text: str, found: Any) -> None:
    assert partitions(text, 1) == found
    assert not (5 in partitions(text, 1)) ^ (text.strip() == "*")


def config(**changes: Any) -> dict[str, Any]:
    values = {name: configdef.broker_default(name) for name in configdef.BROKER}
    return values | {"broker.id": 1} | {name.replace("_", "."): value for name, value in changes.items()}


def snapshot(dynamic: dict[str, dict[str, str]], **overrides: str) -> Snapshot:
    topic = {"id": "00" * 16, "internal": False, "config": {n.replace("_", "."): t for n, t in overrides.items()}}
    return Snapshot(raw_snapshot(1, "c", 1, [], {"t": topic | {"partitions": []}}, dynamic), config())


def in_force(side: throttles.ThrottleType, seen: Snapshot) -> Throttle | None:
    return throttles.in_force(side, seen, config(), traffic(), side.roles.start)


def test_throttle_needs_replicas_and_a_rate() -> None:
    rate = {"1": {LEADER.rate: "5"}}
    names = {"leader_replication_throttled_replicas": "0:1"}
    assert in_force(LEADER, snapshot({}, **names)) is None
    assert in_force(LEADER, snapshot(rate)) is None
    assert in_force(LEADER, snapshot({"2": {LEADER.rate: "5"}}, **names)) is None
    assert in_force(LEADER, snapshot(rate, leader_replication_throttled_replicas="0:2")) is None
    assert in_force(FOLLOWER, snapshot(rate, **names)) is None


@pytest.mark.parametrize("level", ["1", ""])
@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_rate_of_this_broker_or_of_all_is_in_force(side: throttles.ThrottleType, level: str) -> None:
    overrides = {side.replicas.replace(".", "_"): "3:1,4:2"}
    found = in_force(side, snapshot({level: {side.rate: "5"}}, **overrides))
    assert found is not None and found.topics == ["t"]
    assert [found.covers(*one) for one in (("t", 3), ("t", 4), ("u", 3))] == [True, False, False]
    found.count(6, 100_000)
    assert found.exceeded(100_000)


@pytest.mark.parametrize("good", ["*", "", "0:1", "0:1,1:2", "0:1,,1:2", " 0:1 , 1:2 "])
def test_valid_throttled_replicas_are_accepted(good: str) -> None:
    configdef.validate_topic({LEADER.replicas: good, FOLLOWER.replicas: good})


@pytest.mark.parametrize("bad", ["none", "0", "0:", ":1", "0:1:2", "*,0:1", "0:1;1:2", "a:b", "-1:0"])
def test_invalid_throttled_replicas_are_refused(bad: str) -> None:
    with pytest.raises(configdef.ConfigError, match="partition:broker"):
        configdef.validate_topic({LEADER.replicas: bad})


@pytest.mark.parametrize("name", [LEADER.rate, FOLLOWER.rate])
def test_rates_are_valid_for_one_broker_or_all(name: str) -> None:
    for per_broker in (True, False):
        configdef.validate_dynamic({name: "0"}, per_broker)
        for bad in ("-1", "fast"):
            with pytest.raises(configdef.ConfigError, match=name):
                configdef.validate_dynamic({name: bad}, per_broker)
