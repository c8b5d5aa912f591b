"""Work in steps: the time slice of a turn, and fairness between works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek.broker.controller.controller import TICK_S, Controller
from odradek.broker.controller.member.member import Member
from odradek.broker.process.steps import SLICE_S, WAITS, TaskQueue, TaskScheduler
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.metadata.rows import SLOT

from ..controller.replicas.test_partition_dirs import owned


class Clock:
    """Advances only by the duration of the work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, steps: int, seconds: float) -> Iterator[None]:
        for _ in range(steps):
            self.now += seconds
            self.done.append(name)
            yield


def test_small_work_is_done_in_one_turn() -> None:
    clock = Clock()
    steps = TaskScheduler(clock)
    steps.begin(clock.work("a", 10, SLICE_S / 100))
    assert (len(clock.done), steps.waiting) == (10, False)


def test_long_work_continues_over_turns() -> None:
    clock = Clock()
    steps = TaskScheduler(clock)
    steps.begin(clock.work("a", 8, SLICE_S / 2))
    assert (clock.done, steps.waiting) == (["a", "a"], True)
    steps.begin(clock.work("b", 3, SLICE_S))
    assert clock.done == ["a", "a", "b"]
    turns = 0
    while steps.waiting:
        before = clock.now
        steps.advance()
        turns += 1
        assert clock.now - before <= 1.5 * SLICE_S
    assert clock.done[3:7] == ["a", "b", "a", "b"]
    assert (clock.done.count("a"), clock.done.count("b")) == (8, 3)


def test_work_added_by_a_step_shares_its_slice() -> None:
    """A turn of the event loop may add much work."""
    clock = Clock()
    steps = TaskScheduler(clock)

    def beginning() -> Iterator[None]:
        clock.done.append("a")
        steps.begin(clock.work("b", 2, SLICE_S / 2))
        yield

    steps.begin(beginning())
    assert (clock.done, steps.waiting) == (["a"], True)
    steps.add(clock.work("c", 1, SLICE_S))
    assert clock.done == ["a"]
    while steps.waiting:
        steps.advance()
    assert sorted(clock.done) == ["a", "b", "b", "c"]


def test_work_that_waits_ends_the_turn() -> None:
    """The awaited event comes with another turn of the event loop, which rests until then."""
    clock, ready = Clock(), list[bool]()
    steps = TaskScheduler(clock)

    def waiting(name: str) -> Iterator[None]:
        while not ready:
            yield WAITS
        yield from clock.work(name, 1, 0)

    steps.begin(waiting("a"))
    steps.add(waiting("b"))
    assert (steps.waiting, steps.idle) == (True, False), "b must still have its turn"
    steps.advance()
    assert (steps.waiting, steps.idle, clock.now) == (True, True, 0)
    steps.begin(clock.work("c", 4, SLICE_S / 2))
    assert (clock.done, steps.idle) == (["c"] * 2, False)
    steps.advance()
    assert (clock.done, steps.idle) == (["c"] * 4, False)
    steps.advance()
    assert steps.idle
    ready.append(True)
    steps.advance()
    assert (clock.done, steps.waiting, steps.idle) == ([*"cccc", "a", "b"], False, False)


def test_the_controller_rests_while_its_work_waits() -> None:
    """The controller waits for orders that the same loop carries out, and otherwise only for a lock."""
    orders: list[Callable[[], None]] = []
    member: Any = SimpleNamespace(controller_requests=SimpleNamespace(when_done=orders.append))
    one: Any = Controller.__new__(Controller)
    one._steps = TaskScheduler()
    one.begin(Member._requests_done(member))
    assert one._poll_timeout() == 0
    one._steps.advance()
    assert one._poll_timeout() == TICK_S
    orders.pop()()
    one._steps.advance()
    assert not one._steps.waiting


def test_partitions_of_a_topic_wait_for_those_before_them(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        first: Iterator[object] = owner.create_topic(TopicPlan("t", {0: [0]}, {}))
        assert next(first) is None
        second: Iterator[object] = owner.add_partitions("t", {1: [0]})
        assert next(second) == WAITS
        assert set(first) == {None}
        assert set(second) == {None}
        assert all(row[SLOT] >= 0 for row in owner.topics["t"]["partitions"])


def test_exception_does_not_affect_other_work() -> None:
    clock = Clock()
    steps = TaskScheduler(clock)

    def faulty() -> Iterator[None]:
        clock.now += SLICE_S
        yield
        raise ValueError

    steps.begin(faulty())
    steps.begin(clock.work("a", 3, SLICE_S))
    while steps.waiting:
        steps.advance()
    assert clock.done == ["a"] * 3


def test_in_line_work_ends_before_the_next_begins() -> None:
    clock = Clock()
    line = TaskQueue(clock)
    line.add(clock.work("a", 3, SLICE_S / 2))
    line.add(clock.work("b", 1, SLICE_S))
    assert (clock.done, line.waiting) == ([], True), "the work began when it was added"
    line.advance()
    assert (clock.done, line.waiting) == (["a", "a"], True)
    while line.waiting:
        line.advance()
    assert clock.done == ["a", "a", "a", "b"]


def test_in_line_added_work_waits_for_the_current_one() -> None:
    clock = Clock()
    line = TaskQueue(clock)

    def first() -> Iterator[None]:
        yield
        line.add_first(clock.work("the rest of a", 1, 0))

    line.add(first())
    line.add(clock.work("b", 1, 0))
    line.advance()
    assert (clock.done, line.waiting) == (["the rest of a", "b"], False)


def test_in_line_exception_does_not_affect_other_work() -> None:
    clock = Clock()
    line = TaskQueue(clock)

    def faulty() -> Iterator[None]:
        yield
        raise ValueError

    line.add(faulty())
    line.add(clock.work("b", 1, 0))
    line.advance()
    assert (clock.done, line.waiting) == (["b"], False)
