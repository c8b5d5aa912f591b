"""The decision of a worker to spin for the next request; only waiting advances the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.workers.net import busy_poll
from odradek.workers.net.busy_poll import BusyPoll

SPIN_US = 40
LOOK_NS = 1000


class World:
    """Each request comes `gap` ns after the last was taken; a sleeping worker notices it `waking` ns later."""

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
        """A BusyPoll on this clock and poll."""
        return BusyPoll(self.poll, spin_us, self.clock)

    def take(self, waits: BusyPoll, gap: int) -> None:
        """Wait for a request that comes after `gap`."""
        self.due = self.now + gap
        assert waits.wait(1.0) == [(1, 1)]
        assert self.now >= self.due


def slept(gaps: list[int], spin_us: int = SPIN_US) -> list[bool]:
    """For each gap, whether the worker slept."""
    world = World()
    waits, found = world.waiting(spin_us), []
    for gap in gaps:
        before = world.slept
        world.take(waits, gap)
        found.append(world.slept > before)
    return found


def test_worker_spins_for_a_client_with_short_gaps() -> None:
    found = slept([20_000] * 100)
    assert found[:8] == [True] * 8
    assert not any(found[8:])


def test_worker_sleeps_through_long_gaps() -> None:
    world = World()
    waits = world.waiting()
    for _ in range(100):
        world.take(waits, 500_000)
    assert world.slept == 100
    assert world.looked == 0


def test_worker_always_sleeps_if_spinning_is_off() -> None:
    assert all(slept([1000] * 100, spin_us=0))


def test_worker_sleeps_for_a_while_after_a_futile_spin() -> None:
    found = slept([20_000] * 20 + [500_000] + [20_000] * 200)
    after = found[21:]
    assert after.index(False) >= 100


def test_futile_spin_is_bounded() -> None:
    world = World()
    waits = world.waiting()
    for _ in range(20):
        world.take(waits, 20_000)
    looked = world.looked
    world.take(waits, 10_000_000)
    assert (world.looked - looked) * LOOK_NS <= SPIN_US * 1000 + 2 * LOOK_NS


@given(st.lists(st.integers(0, 200_000), max_size=300))
def test_number_of_futile_spins_is_bounded(gaps: list[int]) -> None:
    world = World()
    waits, wasted = world.waiting(), 0
    for gap in gaps:
        slept_before, looked = world.slept, world.looked
        world.take(waits, gap)
        wasted += world.slept > slept_before and world.looked > looked
    assert wasted <= 1 + len(gaps) // 100


def test_timeout_of_zero_does_not_wait() -> None:
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
