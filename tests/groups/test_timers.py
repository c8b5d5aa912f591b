"""Deadlines compared with a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.timers import MOST_STALE, Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("expired"), st.just(""), st.integers(0, 50)),
    )
)


@given(STEPS)
def test_deadlines_equal_model(steps: list[tuple[str, str, int]]) -> None:
    timers: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for what, key, at in steps:
        if what == "set":
            timers.set(key, at)
            model[key] = at
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = {k: v for k, v in model.items() if v <= at}
            expired = timers.expired(at)
            assert sorted(expired) == sorted(due)
            assert [due[k] for k in expired] == sorted(due.values())
            model = {k: v for k, v in model.items() if v > at}
        assert timers.next_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all(timers.at(k) == model.get(k) for k in "abcd")


def test_heartbeats_do_not_grow_the_heap() -> None:
    timers: Deadlines[str] = Deadlines()
    for at in range(10_000):
        timers.set("m", at)
        timers.next_ms()
    assert len(timers._heap) == 1


def test_cancelled_deadlines_are_freed() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(100_000):
        deadlines.set(key, 10**9 + key)
        if key % 100:
            deadlines.cancel(key)
    assert len(deadlines._heap) <= 2 * len(deadlines) + MOST_STALE + 1
    assert deadlines.expired(2 * 10**9) == list(range(0, 100_000, 100))
    assert deadlines.next_ms() is None
