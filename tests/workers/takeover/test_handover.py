"""Every order of events of a hand-over, with the death of either side at every step: no connection has two holders."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from odradek.workers.takeover import handover
from odradek.workers.takeover.handover import (
    Abandon,
    Answer,
    Close,
    Finish,
    Give,
    Giver,
    Giving,
    GoOn,
    Hello,
    Release,
    Report,
    Resume,
    Serve,
    StopAccepting,
    Taker,
    Taking,
)
from odradek.workers.takeover.takeover_messages import NEWEST, OLDEST

CONNECTIONS = (0, 1, 2)
REFUSED = 1  # a connection that the taker cannot serve


class World:
    """Two workers with a channel each way, and the holders of the descriptors."""

    def __init__(self) -> None:
        self.giver, self.taker = Giver(), Taker()
        self.to_giver: deque[Any] = deque()
        self.to_taker: deque[Any] = deque()
        self.giver_lives = self.taker_lives = True
        self.served_by_giver = set(CONNECTIONS)
        self.kept_open_by_giver: set[int] = set()  # given, without an answer yet
        self.served_by_taker: set[int] = set()
        self.finished = self.went_on = False
        self.numbers: dict[int, int] = {}
        self.taker_does(self.taker.begin())

    # -- effects

    def giver_does(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Give):
                self.served_by_giver.remove(effect.key)
                self.kept_open_by_giver.add(effect.key)
                self.numbers[effect.number] = effect.key
                self.to_taker.append(effect)
            elif isinstance(effect, Release | Close):
                self.kept_open_by_giver.remove(effect.key)
            elif isinstance(effect, Resume):
                self.kept_open_by_giver.remove(effect.key)
                self.served_by_giver.add(effect.key)
            elif isinstance(effect, Finish):
                self.finished = True
                self.to_taker.append(effect)
            elif isinstance(effect, GoOn):
                self.went_on = True
                self.to_taker.append("closed")
            else:
                assert isinstance(effect, StopAccepting)

    def taker_does(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Serve):
                key = self.numbers[effect.number]
                if key == REFUSED:
                    self.taker_does(self.taker.unable(effect.number))
                else:
                    self.served_by_taker.add(key)
                    self.taker_does(self.taker.served(effect.number))
            elif isinstance(effect, Hello | Answer):
                self.to_giver.append(effect)
            else:
                assert isinstance(effect, Report), effect

    # -- events

    def events(self) -> Iterator[str]:
        if self.giver_lives:
            if self.to_giver:
                yield "giver receives"
            if self.giver.has_room:
                yield from (f"quiet {key}" for key in self.served_by_giver - self.giver.kept)
            if not self.served_by_giver - self.giver.kept:
                yield "nothing left"
            yield "late"
            yield "giver dies"
        if self.taker_lives:
            if self.to_taker:
                yield "taker receives"
            yield "taker dies"

    def happens(self, event: str) -> None:
        if event.startswith("quiet"):
            self.giver_does(self.giver.quiet(int(event.removeprefix("quiet "))))
        else:
            getattr(self, "on_" + event.replace(" ", "_"))()

    def on_giver_receives(self) -> None:
        message = self.to_giver.popleft()
        if message == "closed":
            self.giver_does(self.giver.gone("the taker has ended"))
        elif isinstance(message, Hello):
            self.giver_does(self.giver.versions(message.oldest, message.newest))
        else:
            answered = self.giver.took if message.served else self.giver.not_taken
            self.giver_does(answered(message.number))

    def on_taker_receives(self) -> None:
        message = self.to_taker.popleft()
        if message == "closed":
            self.taker_does(self.taker.gone())
        elif isinstance(message, Give):
            self.taker_does(self.taker.given(message.number))
        else:
            self.taker_does(self.taker.end())

    def on_nothing_left(self) -> None:
        self.giver_does(self.giver.nothing_left())

    def on_late(self) -> None:
        self.giver_does(self.giver.late())

    def on_giver_dies(self) -> None:
        self.giver_lives = False
        self.served_by_giver, self.kept_open_by_giver = set(), set()
        self.to_giver.clear()
        self.to_taker.append("closed")

    def on_taker_dies(self) -> None:
        """Descriptors on their way to it are closed by the kernel."""
        self.taker_lives = False
        self.served_by_taker = set()
        self.to_taker.clear()
        self.to_giver.append("closed")

    # -- what must hold

    def check(self) -> None:
        assert not self.served_by_giver & self.served_by_taker, "two workers serve a connection"
        assert not self.served_by_giver & self.kept_open_by_giver
        assert not (self.finished and self.went_on), "it ends and goes on"
        if self.finished:
            assert not self.kept_open_by_giver, "it ends before an answer"
        if self.giver_lives and self.taker_lives and not self.went_on:
            on_the_way = {message.key for message in self.to_taker if isinstance(message, Give)}
            assert self.served_by_giver | self.served_by_taker | on_the_way | self.kept_open_by_giver == {*CONNECTIONS}

    def check_end(self) -> None:
        """No event of the workers is left."""
        if self.giver_lives:
            assert self.giver.state in (Giving.DONE, Giving.ENDED)
            assert not self.kept_open_by_giver, "a connection has no holder"
        if self.taker_lives and not self.giver_lives:
            assert self.taker.state is Taking.ENDED

    def key(self) -> Any:
        giver, taker = self.giver, self.taker
        machines = giver.state, giver.kept, giver._pending, giver._next, taker.state, taker._next
        holders = self.served_by_giver, self.kept_open_by_giver, self.served_by_taker
        alive = self.giver_lives, self.taker_lives, self.finished, self.went_on
        return repr((machines, holders, alive, self.to_giver, self.to_taker))


def test_no_order_of_events_and_deaths_gives_a_connection_two_holders_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "WINDOW", 2)
    seen: set[Any] = set()
    ends: set[tuple[bool, bool]] = set()
    todo = [World()]
    while todo:
        world = todo.pop()
        for event in world.events():
            after = deepcopy(world)
            after.happens(event)
            after.check()
            if (key := after.key()) not in seen:
                seen.add(key)
                todo.append(after)
                if not after.to_giver and not after.to_taker and (after.finished or after.went_on):
                    after.check_end()
                    ends.add((after.finished, after.went_on))
    assert ends == {(True, False), (False, True)}
    assert len(seen) > 500


def greeted() -> Giver:
    giver = Giver()
    assert giver.versions(OLDEST, NEWEST) == [StopAccepting()]
    return giver


def test_given_connection_is_closed_when_the_taker_ends_without_an_answer() -> None:
    giver = greeted()
    giver.quiet("a")
    giver.quiet("b")
    assert giver.took(0) == [Release("a")]
    assert giver.gone("it died") == [Close("b"), GoOn("it died")]
    assert giver.gone("again") == []


def test_connection_that_cannot_be_taken_is_served_again_and_not_given_again() -> None:
    giver = greeted()
    assert giver.quiet("a") == [Give(0, "a")]
    assert giver.not_taken(0) == [Resume("a")]
    assert giver.kept == {"a"}
    assert giver.nothing_left() == [Finish()]


def test_taker_of_another_version_gets_nothing() -> None:
    giver = Giver()
    (effect,) = giver.versions(NEWEST + 1, NEWEST + 2)
    assert isinstance(effect, GoOn) and f"not {NEWEST}" in effect.why
    assert not giver.has_room


def test_taker_that_does_not_answer_ends_the_handover() -> None:
    giver = greeted()
    giver.quiet("a")
    assert giver.late() == [Close("a"), GoOn("the new worker does not answer")]


def test_connections_that_are_never_quiet_are_left_to_the_drain() -> None:
    giver = greeted()
    assert giver.late() == [Finish()]


def test_answer_without_a_gift_ends_the_handover() -> None:
    giver = greeted()
    (effect,) = giver.took(7)
    assert isinstance(effect, GoOn)


def test_connection_that_comes_twice_ends_the_take_over() -> None:
    taker = Taker()
    assert taker.begin() == [Hello(OLDEST, NEWEST)]
    assert taker.given(0) == [Serve(0)]
    (effect,) = taker.given(0)
    assert isinstance(effect, Abandon)


def test_window_bounds_the_connections_without_an_answer() -> None:
    giver = greeted()
    for number in range(handover.WINDOW):
        assert giver.has_room
        giver.quiet(number)
    assert not giver.has_room
    giver.took(0)
    assert giver.has_room
