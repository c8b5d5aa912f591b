"""The order of a rolling upgrade, for any number of workers and any failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.rolling.roll import (
    Connect,
    Failed,
    Finished,
    Kill,
    NoSpare,
    Phase,
    Probe,
    Roll,
    Start,
    Unwant,
    Want,
)  # fmt: skip
from odradek.ipc.roles import FIRST_WORKER, MAX_WORKERS, ROLES

A, B, SPARE = FIRST_WORKER, FIRST_WORKER + 1, FIRST_WORKER + 2
WORKERS = st.sets(st.integers(FIRST_WORKER, ROLES - 1), min_size=1, max_size=MAX_WORKERS - 1)


class Broker:
    """Applies effects: what is wanted, what runs, which code it has."""

    def __init__(self, workers: set[int]) -> None:
        self.wanted = set(workers)
        self.new: set[int] = set()
        self.ended = ""

    def apply(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                assert effect.role not in self.wanted, "two processes of one number"
                self.wanted.add(effect.role)
                self.new.add(effect.role)
            elif isinstance(effect, Want):
                self.wanted.add(effect.role)
            elif isinstance(effect, Unwant):
                self.wanted.remove(effect.role)
                self.new.discard(effect.role)
            elif isinstance(effect, Failed):
                self.ended = effect.why
            elif isinstance(effect, Finished):
                self.ended = "finished"


def through(roll: Roll, broker: Broker, steps: int = 1 << 30) -> None:
    """Let all go well, for so many steps."""
    broker.apply(roll.imported())
    while not roll.over and steps > 0:
        steps -= 1
        if roll.phase is Phase.STARTING:
            broker.apply(roll.runs())
        elif roll.phase is Phase.PROBING:
            broker.apply(roll.answers())
        elif roll.phase is Phase.GIVING:
            broker.apply(roll.handed_over())
        else:
            broker.apply(roll.died(roll.old))


def test_two_workers_use_one_spare_number_and_end_with_their_own() -> None:
    roll, broker = Roll({A, B}), Broker({A, B})
    through(roll, broker)
    assert roll.replaced == 3
    assert broker.wanted == broker.new == {A, B}


@given(WORKERS)
def test_all_workers_are_new_at_the_end_and_their_numbers_are_the_lowest(workers: set[int]) -> None:
    roll, broker = Roll(workers), Broker(workers)
    through(roll, broker)
    assert broker.ended == "finished"
    assert broker.wanted == broker.new == set(range(FIRST_WORKER, FIRST_WORKER + len(workers)))


@given(WORKERS, st.integers(0, 40), st.sampled_from(["new dies", "old dies", "late", "failed"]))
def test_as_many_workers_are_wanted_after_a_failure_at_any_step(workers: set[int], steps: int, event: str) -> None:
    roll, broker = Roll(workers), Broker(workers)
    through(roll, broker, steps)
    before = roll.phase
    if event == "new dies":
        broker.apply(roll.died(roll.new))
    elif event == "old dies":
        broker.apply(roll.died(roll.old))
    else:
        broker.apply(roll.late() if event == "late" else roll.failed("why"))
    if roll.phase is Phase.FAILED:
        assert broker.ended and before is not Phase.DONE
        assert len(broker.wanted) == len(workers)
    else:
        through(roll, broker)
        assert broker.wanted == broker.new == set(range(FIRST_WORKER, FIRST_WORKER + len(workers)))


def test_old_worker_is_wanted_again_when_its_successor_dies_while_it_takes_over() -> None:
    roll = Roll({A, B})
    roll.imported()
    roll.runs()
    assert roll.answers() == [Unwant(A, False), Connect(A, SPARE)]
    effects = roll.died(SPARE)
    assert effects[:2] == [Want(A), Unwant(SPARE, True)]
    assert isinstance(effects[2], Failed)


def test_new_worker_that_does_not_start_in_time_ends() -> None:
    roll = Roll({A})
    assert roll.imported() == [Start(B)]
    (unwant, failed) = roll.late()
    assert unwant == Unwant(B, True)
    assert failed == Failed("the new worker-1 took too long: starting")


def test_new_worker_is_probed_before_it_gets_anything() -> None:
    roll = Roll({A})
    roll.imported()
    assert roll.runs() == [Probe(B)]


def test_old_worker_that_is_stuck_is_killed() -> None:
    roll = Roll({A})
    roll.imported()
    roll.runs()
    roll.answers()
    assert roll.late() == [Kill(A)]


def test_upgrade_without_a_spare_number_is_refused() -> None:
    with pytest.raises(NoSpare, match="scale"):
        Roll(range(FIRST_WORKER, ROLES))
