"""When a worker stays awake for the next request, over a clock that only waiting moves on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.workers.net import busy_poll
from odradek.workers.net.busy_poll import BusyPoll

SPIN_US = 40
LOOK_NS = 1000


class World:
    """Requests come `gap` ns after the last was taken; asleep it takes `waking` ns more to notice."""

    def __init__(self, waking: int = 10_000) -> None:
        self.now = 0
        self.due = 0
        self.waking = waking
        self.slept = self.looked = 0

    def poll(self, timeout: float) -> busy_poll.Events:
        """Like epoll's."""
        if not timeout:
            self.looked += 1
            self.now += LOOK_NS
        elif self.now < self.due:
            self.slept += 1
            end = self.now + int(timeout * 1e9)
            self.now = min(self.due + self.waking, end)
        return [(1, 1)] if self.now >= self.due else []

    def clock(self) -> int:
        """Nanoseconds."""
        return self.now

    def waiting(self, spin_us: int = SPIN_US) -> BusyPoll:
        """What is tested, in this world."""
        return BusyPoll(self.poll, spin_us, self.clock)

    def take(self, waits: BusyPoll, gap: int) -> None:
        """Wait for a request that comes after `gap`."""
        self.due = self.now + gap
        assert waits.wait(1.0) == [(1, 1)]
        assert self.now >= self.due


def slept(gaps: list[int], spin_us: int = SPIN_US) -> list[bool]:
    """For each gap whether it was slept through."""
    world = World()
    waits, found = world.waiting(spin_us), []
    for gap in gaps:
        before = world.slept
        world.take(waits, gap)
        found.append(world.slept > before)
    return found


def test_a_client_that_is_back_at_once_finds_the_worker_awake() -> None:
    found = slept([20_000] * 100)
    assert found[:8] == [True] * 8
    assert not any(found[8:])


def test_long_gaps_are_slept_through() -> None:
    world = World()
    waits = world.waiting()
    for _ in range(100):
        world.take(waits, 500_000)
    assert world.slept == 100
    assert world.looked == 0


def test_without_spinning_it_always_sleeps() -> None:
    assert all(slept([1000] * 100, spin_us=0))


def test_a_wrong_guess_is_not_repeated_soon() -> None:
    found = slept([20_000] * 20 + [500_000] + [20_000] * 200)
    after = found[21:]
    assert after.index(False) >= 100


def test_a_wrong_guess_costs_one_spin() -> None:
    world = World()
    waits = world.waiting()
    for _ in range(20):
        world.take(waits, 20_000)
    looked = world.looked
    world.take(waits, 10_000_000)
    assert (world.looked - looked) * LOOK_NS <= SPIN_US * 1000 + 2 * LOOK_NS


@given(st.lists(st.integers(0, 200_000), max_size=300))
def test_time_spent_awake_for_nothing_is_bounded(gaps: list[int]) -> None:
    world = World()
    waits, wasted = world.waiting(), 0
    for gap in gaps:
        slept_before, looked = world.slept, world.looked
        world.take(waits, gap)
        wasted += world.slept > slept_before and world.looked > looked
    assert wasted <= 1 + len(gaps) // 100


def test_no_timeout_never_waits() -> None:
    world = World()
    waits = world.waiting()
    world.due = 10**12
    assert waits.wait(0) == []
    assert world.slept == 0
    for _ in range(20):
        world.take(waits, 0)
    world.due = world.now + 10**9
    assert waits.wait(0) == []
    assert world.now < 10**9
