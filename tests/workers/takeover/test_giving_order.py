"""The order in which connections are given, for any of them that are never quiet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.workers.takeover.giving_order import LONG_S, MOST, GivingOrder

STEP_S = 0.001


class Run:
    """Turns of `looks` looks each. `busy` are never quiet, the others at their second look."""

    def __init__(self, keys: list[int], busy: set[int], looks: int) -> None:
        self.order, self.busy, self.looks, self.now = GivingOrder(), busy, looks, 0.0
        self.order.begin(keys)
        self.resting: dict[int, float] = {}  # by key: since when
        self.given: dict[int, float] = {}  # by key: how long it rested

    def turn(self) -> None:
        seen: list[int] = []
        for key in self.order.turn(self.now, lambda: len(seen) < self.looks):
            assert key not in seen, "once in a turn"
            seen.append(key)
            self._look(key)
        self.now += STEP_S
        assert sum(self.now - since < LONG_S for since in self.resting.values()) <= MOST

    def _look(self, key: int) -> None:
        if key in self.resting and key not in self.busy:
            self.given[key] = self.now - self.resting.pop(key)
            self.order.leaves(key)
        else:
            self.resting.setdefault(key, self.now)
            self.order.rests(key, self.now)


@given(st.integers(0, 400), st.sets(st.integers(0, 399)), st.integers(2, 3 * MOST))
def test_all_that_get_quiet_are_given_whatever_the_others_do(count: int, busy: set[int], looks: int) -> None:
    keys = set(range(count))
    run = Run(sorted(keys), busy & keys, looks)
    for _ in range(20_000):
        if run.given.keys() == keys - busy and not run.order.has_fresh:
            break
        run.turn()
    assert run.given.keys() == keys - busy
    assert run.order.is_empty == (not busy & keys)


def test_last_of_a_thousand_rests_no_longer_than_the_first_when_a_turn_has_time_for_a_few() -> None:
    run = Run(list(range(1000)), set(), 100)
    while not run.order.is_empty:
        run.turn()
    assert max(run.given.values()) < 3 * STEP_S


def test_those_that_came_meanwhile_have_their_turn_and_none_comes_twice() -> None:
    run = Run([1, 2], {1}, 10)
    for _ in range(100):
        run.turn()
    run.order.begin([1, 3])
    for _ in range(3):
        run.turn()
    assert run.given.keys() == {2, 3} and run.resting.keys() == {1}
