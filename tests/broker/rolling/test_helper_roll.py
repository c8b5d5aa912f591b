"""The order in which the processes beside the workers are replaced, for any failure."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.rolling.helper_roll import (
    ORDER,
    Back,
    End,
    HelperFailed,
    HelperPhase,
    HelperRoll,
    HelpersReplaced,
    KillHelper,
)  # fmt: skip
from odradek.ipc import roles

WANTED = st.sets(st.sampled_from(ORDER))
EVENTS = st.lists(
    st.sampled_from(["ended", "runs", "settled", "old dies", "another dies", "late", "failed"]), max_size=40
)


class Broker:
    """Applies effects: which code the next process of each role has, and that one at most is being replaced."""

    def __init__(self, wanted: set[int]) -> None:
        self.new: set[int] = set()
        self.wanted = wanted
        self.over: Any = None

    def apply(self, effects: list[Any]) -> None:
        for effect in effects:
            assert self.over is None, "nothing happens after the end"
            if isinstance(effect, End):
                assert effect.role in self.wanted - self.new, "each is replaced once"
                self.new.add(effect.role)
            elif isinstance(effect, Back):
                self.new.remove(effect.role)
            elif isinstance(effect, HelpersReplaced | HelperFailed):
                self.over = effect


def step(roll: HelperRoll, event: str) -> list[Any]:
    if event == "old dies":
        return roll.died(roll.role)
    if event == "another dies":
        return roll.died(roles.FIRST_WORKER)
    if event == "failed":
        return roll.failed("why")
    found: list[Any] = getattr(roll, event)()
    return found


def through(roll: HelperRoll, broker: Broker) -> None:
    while roll.active:
        for event in ("ended", "runs", "settled"):
            broker.apply(step(roll, event))


@given(WANTED)
def test_all_that_are_wanted_are_replaced_in_order(wanted: set[int]) -> None:
    roll, broker = HelperRoll(wanted), Broker(wanted)
    broker.apply(roll.begin())
    through(roll, broker)
    assert broker.new == wanted and isinstance(broker.over, HelpersReplaced)
    assert roll.replaced == len(wanted)


@given(WANTED, EVENTS)
def test_after_any_events_those_that_are_replaced_are_new_and_the_others_old(
    wanted: set[int], events: list[str]
) -> None:
    roll, broker = HelperRoll(wanted), Broker(wanted)
    broker.apply(roll.begin())
    for event in events:
        broker.apply(step(roll, event))
    if roll.active:
        through(roll, broker)
    assert broker.over is not None
    assert len(broker.new) == roll.replaced
    assert (roll.phase is HelperPhase.DONE) == (broker.new == wanted)


@given(EVENTS)
def test_nothing_is_replaced_before_the_workers_are(events: list[str]) -> None:
    roll = HelperRoll(ORDER)
    assert [effect for event in events for effect in step(roll, event)] == []
    assert not roll.active


def test_new_process_that_dies_before_it_has_settled_is_started_from_the_former_code() -> None:
    for serves in (False, True):
        roll = HelperRoll([roles.JANITOR])
        roll.begin()
        roll.ended()
        if serves:
            roll.runs()
        assert roll.died(roles.JANITOR) == [Back(roles.JANITOR), HelperFailed("the new janitor has ended")]


def test_new_process_that_does_not_serve_in_time_is_killed_and_the_old_one_that_does_not_end_is_too() -> None:
    roll = HelperRoll([roles.JANITOR])
    roll.begin()
    assert roll.late() == [KillHelper(roles.JANITOR)]
    roll.ended()
    failed = HelperFailed("the new janitor took too long: starting")
    assert roll.late() == [Back(roles.JANITOR), KillHelper(roles.JANITOR), failed]
