"""All tables of workers.net.connection_state."""

from __future__ import annotations

import itertools

import pytest

from odradek.workers.net import connection_state as states
from odradek.workers.net.connection_state import (
    CLOSED,
    EVENTS,
    EXPIRED,
    FULL,
    READY,
    RESTING,
    STATES,
    TAKING,
    THROTTLED,
    UNANSWERED,
)

MEANING = {  # the reasons that each event adds and removes
    "TAKE": (UNANSWERED | TAKING, 0), "TAKEN": (0, TAKING), "HOLD": (UNANSWERED, 0), "ANSWER": (0, UNANSWERED),
    "FILL": (FULL, 0), "DRAIN": (0, FULL), "REST": (RESTING, 0), "CONTINUE": (0, RESTING),
    "MUTE": (THROTTLED, 0), "UNMUTE": (0, THROTTLED), "EXPIRE": (EXPIRED, 0),
}  # fmt: skip


def test_states_are_all_sets_of_reasons() -> None:
    assert {sum(some) for n in range(7) for some in itertools.combinations(states.REASONS.values(), n)} == set(
        STATES
    ) - {CLOSED}
    assert set(EVENTS) == {*MEANING, "CLOSE"}
    assert {len(table) for table in EVENTS.values()} == {len(STATES)}


@pytest.mark.parametrize("state", [state for state in STATES if state != CLOSED])
@pytest.mark.parametrize("event", MEANING)
def test_event_changes_only_its_reasons(state: int, event: str) -> None:
    adds, removes = MEANING[event]
    new = EVENTS[event][state]
    assert new & adds == adds
    assert new & removes == 0
    assert new & ~(adds | removes) == state & ~(adds | removes)


def test_closed_is_final() -> None:
    assert {table[CLOSED] for table in EVENTS.values()} == {CLOSED}
    assert set(EVENTS["CLOSE"]) == {CLOSED}


def test_every_state_can_be_reached_and_left() -> None:
    arrows = {(state, table[state]) for table in EVENTS.values() for state in STATES}
    back = {(there, here) for here, there in arrows}
    assert _reached(READY, arrows) == set(STATES)
    lasting = {state for state in STATES if state & EXPIRED} | {CLOSED}
    assert _reached(READY, back) == set(STATES) - lasting, "a state that no event ends"


def test_expired_connection_can_only_close() -> None:
    """The next requests belong to the authentication exchange, which the loop does not run."""
    expired = [state for state in STATES if state & EXPIRED and state != CLOSED]
    assert expired
    for name, table in EVENTS.items():
        assert all(table[state] & EXPIRED or name == "CLOSE" for state in expired)


def _reached(start: int, arrows: set[tuple[int, int]]) -> set[int]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        new = {there for origin, there in arrows if origin == here} - found
        found |= new
        todo += new
    return found
