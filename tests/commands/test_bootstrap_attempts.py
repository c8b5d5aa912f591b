"""Which addresses are tried, and when a command gives up: with a clock of the test's own."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.commands._shared.bootstrap_attempts import (
    FOR_GOOD,
    FOR_NOW,
    HEAD_START_S,
    PATIENCE_S,
    UNTIL_DEADLINE,
    BootstrapAttempts,
    Failure,
)  # fmt: skip

PATIENCES = st.sampled_from([FOR_GOOD, FOR_NOW, UNTIL_DEADLINE])


def played(
    addresses: list[str], patiences: list[float], takes_s: float, deadline: float = math.inf
) -> tuple[BootstrapAttempts, float, list[str]]:
    """The machine once it is over, the time, and the attempts: each address fails always alike, after `takes_s`."""
    attempts, now, tried = BootstrapAttempts(addresses, 0.0, deadline), 0.0, []
    ends: list[tuple[float, str]] = []
    while not attempts.is_over:
        for address in attempts.take_due(now):
            tried.append(address)
            ends.append((now + takes_s, address))
        ended = [one for one in ends if one[0] <= now]
        for one in ended:
            ends.remove(one)
            patience = patiences[addresses.index(one[1])]
            attempts.failed(one[1], Failure(f"fails with {patience}", patience), now)
        if not ended:
            wait = attempts.wait_s(now)
            assert ends or wait is not None, "it waits for nothing"
            now = min([now + wait] if wait is not None else [], default=math.inf) if not ends else min(
                [end for end, _ in ends] + ([now + wait] if wait is not None else [])
            )  # fmt: skip
    return attempts, now, tried


@given(st.lists(PATIENCES, min_size=1, max_size=5), st.sampled_from([0.0, 0.01, 0.4, 3.0]))
def test_every_address_is_tried_and_the_attempts_end(patiences: list[float], takes_s: float) -> None:
    """By the longest patience that a failure deserves, or the deadline."""
    addresses = [f"host-{number}:9092" for number in range(len(patiences))]
    attempts, now, tried = played(addresses, patiences, takes_s, deadline=20.0)
    assert set(tried) == set(addresses)
    assert all(tried.count(one) == 1 for one, patience in zip(addresses, patiences, strict=True) if not patience)
    patience, last_start = min(20.0, max(patiences)), HEAD_START_S * (len(addresses) - 1)
    assert patience - 1.0 - takes_s <= now <= max(patience, last_start) + takes_s
    assert attempts.text.count(";") == (len(addresses) - 1 if len(set(patiences)) > 1 else 0)


def test_failure_for_good_ends_at_once() -> None:
    attempts, now, tried = played(["a:1"], [FOR_GOOD], 0.01)
    assert now == 0.01 and tried == ["a:1"] and attempts.text == f"fails with {FOR_GOOD}"


def test_refusing_address_is_tried_again_within_the_patience() -> None:
    _, now, tried = played(["a:1"], [FOR_NOW], 0.0)
    assert PATIENCE_S / 2 < now < PATIENCE_S and len(tried) > 3


def test_deadline_ends_patience() -> None:
    assert 0.2 < played(["a:1"], [UNTIL_DEADLINE], 0.0, deadline=0.5)[1] < 0.5
    assert 18.0 < played(["a:1"], [UNTIL_DEADLINE], 0.0, deadline=20.0)[1] < 20.0


def test_next_address_does_not_wait_for_a_silent_one() -> None:
    attempts = BootstrapAttempts(["silent:1", "good:1"], 10.0)
    assert attempts.take_due(10.0) == ["silent:1"]
    assert attempts.wait_s(10.0) == HEAD_START_S
    assert attempts.take_due(10.0 + HEAD_START_S) == ["good:1"]
    assert attempts.wait_s(10.0 + HEAD_START_S) is None


def test_next_address_is_tried_as_soon_as_one_fails() -> None:
    attempts = BootstrapAttempts(["a:1", "b:1", "c:1"], 10.0)
    attempts.take_due(10.0)
    attempts.failed("a:1", Failure("refused", FOR_NOW), 10.001)
    assert attempts.take_due(10.001) == ["b:1"]


def test_reasons_of_several_addresses_are_told_apart() -> None:
    attempts = BootstrapAttempts(["a:1", "b:1"], 0.0)
    attempts.take_due(1.0)
    attempts.failed("a:1", Failure("refused", FOR_NOW), 1.0)
    attempts.failed("b:1", Failure("speaks HTTP", FOR_GOOD), 1.0)
    assert attempts.text == "a:1: refused; b:1: speaks HTTP"
