"""Timeouts: a due timeout runs once and in order, a cancelled one does not run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.process.timeouts import Timeouts


@given(st.lists(st.one_of(st.tuples(st.just("add"), st.integers(0, 9)), st.tuples(st.just("cancel"), st.integers(0, 9)),
                          st.tuples(st.just("due"), st.integers(0, 9)))))  # fmt: skip
def test_timeouts_follow_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    timeouts, cancels, done, left = Timeouts(), list[Callable[[], object]](), list[int](), dict[int, int]()
    for step, value in steps:
        if step == "add":
            number = len(cancels)
            cancels.append(timeouts.add(value, partial(done.append, number)))
            left[number] = value
        elif step == "cancel" and value < len(cancels):
            cancels[value]()
            left.pop(value, None)
        elif step == "due":
            done.clear()
            timeouts.due(value)
            assert done == [number for number, at in left.items() if at <= value]
            left = {number: at for number, at in left.items() if at > value}
        assert len(timeouts) == len(left)
        assert timeouts.next() == min(left.values(), default=float("inf"))


def test_timeout_may_cancel_another_due_one() -> None:
    timeouts, done = Timeouts(), list[str]()

    def first() -> None:
        done.append("first")
        cancel()

    timeouts.add(1, first)
    cancel = timeouts.add(1, lambda: done.append("second"))
    timeouts.due(2)
    assert done == ["first"]
    assert not len(timeouts)
