"""The hand-over of connections from a worker to its successor: both sides, events in, effects out. No sockets.

The giver gives a connection only between two requests, and does not touch it until the answer:

    giver      event                     next        effects
    GREETING   versions that it writes   GIVING      StopAccepting
    GREETING   other versions            ENDED       GoOn
    GIVING     a connection is quiet     GIVING      Give, at most WINDOW without an answer
    GIVING     took                      GIVING      Release
    GIVING     not taken                 GIVING      Resume; it is not given again
    GIVING     nothing is left to give   DONE        Finish
    GIVING     it takes too long         DONE        Finish, if nothing is without an answer
    any but DONE and ENDED: the taker is gone, or breaks the rules, or does not answer in time
                                         ENDED       Close what is without an answer, GoOn

    taker      event                     next        effects
    TAKING     given, the next number    TAKING      Serve, then Answer
    TAKING     given, another number     ENDED       Abandon
    TAKING     end                       ENDED       Report
    TAKING     the giver is gone         ENDED       Report

A descriptor has one holder at a time. Without an answer the giver cannot know whether the taker has taken requests, so
it closes the connection: no request is executed twice, no answer is sent twice, and what was acknowledged stays so.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from odradek.workers.takeover.takeover_messages import NEWEST, OLDEST

WINDOW = 64  # connections without an answer; the kernel bounds the descriptors on their way

Key = Any  # what the giver knows a connection by; hashable


class Giving(enum.Enum):
    """The states of the giver."""

    GREETING = "greeting"
    GIVING = "giving"
    DONE = "done"
    ENDED = "ended"


class StopAccepting(NamedTuple):
    """Get no more connections from the acceptor."""


class Give(NamedTuple):
    """Stop serving the connection, and send it under this number."""

    number: int
    key: Key


class Release(NamedTuple):
    """Close the descriptor: the taker has its own."""

    key: Key


class Resume(NamedTuple):
    """Serve the connection again."""

    key: Key


class Close(NamedTuple):
    """End the connection."""

    key: Key


class Finish(NamedTuple):
    """Tell the taker that nothing follows, and drain."""


class GoOn(NamedTuple):
    """Serve what is left as before; get connections from the acceptor again."""

    why: str


GiverEffect = StopAccepting | Give | Release | Resume | Close | Finish | GoOn


class Giver:
    """The worker that is replaced. `kept`: connections that the taker could not serve."""

    def __init__(self) -> None:
        self.state = Giving.GREETING
        self.kept: set[Key] = set()
        self._pending: dict[int, Key] = {}
        self._next = 0

    @property
    def has_room(self) -> bool:
        """Whether `quiet` may be called."""
        return self.state is Giving.GIVING and len(self._pending) < WINDOW

    @property
    def given(self) -> int:
        """The number of connections given so far."""
        return self._next - len(self.kept)

    def versions(self, oldest: int, newest: int) -> list[GiverEffect]:
        """The taker reads records of these versions."""
        if self.state is not Giving.GREETING:
            return self.gone("the new worker greets twice")
        if not oldest <= NEWEST <= newest:
            return self.gone(f"the new worker reads records of versions {oldest} to {newest}, not {NEWEST}")
        self.state = Giving.GIVING
        return [StopAccepting()]

    def quiet(self, key: Key) -> list[GiverEffect]:
        """A connection is between two requests. Call it while `has_room`, and not for those that are `kept`."""
        number, self._next = self._next, self._next + 1
        self._pending[number] = key
        return [Give(number, key)]

    def took(self, number: int) -> list[GiverEffect]:
        """The taker serves the connection."""
        if number not in self._pending:
            return self.gone("the new worker answers what it was not given")
        return [Release(self._pending.pop(number))]

    def not_taken(self, number: int) -> list[GiverEffect]:
        """The taker cannot serve the connection."""
        if number not in self._pending:
            return self.gone("the new worker answers what it was not given")
        key = self._pending.pop(number)
        self.kept.add(key)
        return [Resume(key)]

    def nothing_left(self) -> list[GiverEffect]:
        """No connection is left that can be given."""
        if self.state is not Giving.GIVING or self._pending:
            return []
        self.state = Giving.DONE
        return [Finish()]

    def late(self) -> list[GiverEffect]:
        """It takes too long: connections that are never quiet are left to the drain."""
        if self.state is Giving.GREETING or self._pending:
            return self.gone("the new worker does not answer")
        return self.nothing_left()

    def gone(self, why: str) -> list[GiverEffect]:
        """The taker has ended, or breaks the rules."""
        if self.state in (Giving.DONE, Giving.ENDED):
            return []
        self.state = Giving.ENDED
        closed: list[GiverEffect] = [Close(key) for key in self._pending.values()]
        self._pending.clear()
        return [*closed, GoOn(why)]


class Taking(enum.Enum):
    """The states of the taker."""

    TAKING = "taking"
    ENDED = "ended"


class Hello(NamedTuple):
    """Say which versions of records are read."""

    oldest: int
    newest: int


class Serve(NamedTuple):
    """Serve the connection of this number; then call `served` or `unable`."""

    number: int


class Answer(NamedTuple):
    """Tell the giver whether the connection is served."""

    number: int
    served: bool


class Abandon(NamedTuple):
    """Close the channel, and descriptors that came with it."""

    why: str


class Report(NamedTuple):
    """Log how many connections were taken over; `whole`: all that were to come."""

    taken: int
    whole: bool


TakerEffect = Hello | Serve | Answer | Abandon | Report


class Taker:
    """The worker that replaces another."""

    def __init__(self) -> None:
        self.state = Taking.TAKING
        self._next = 0
        self._count = 0

    def begin(self) -> list[TakerEffect]:
        """The channel is there."""
        return [Hello(OLDEST, NEWEST)]

    def given(self, number: int) -> list[TakerEffect]:
        """A connection came."""
        if self.state is not Taking.TAKING or number != self._next:
            self.state = Taking.ENDED
            return [Abandon(f"connection {number} came where {self._next} was due")]
        self._next += 1
        return [Serve(number)]

    def served(self, number: int) -> list[TakerEffect]:
        """It is served here."""
        self._count += 1
        return [Answer(number, True)]

    def unable(self, number: int) -> list[TakerEffect]:
        """It cannot be served here; none of its bytes was read."""
        return [Answer(number, False)]

    def end(self) -> list[TakerEffect]:
        """Nothing follows."""
        return self._ended(True)

    def gone(self) -> list[TakerEffect]:
        """The giver has ended."""
        return self._ended(False)

    def _ended(self, whole: bool) -> list[TakerEffect]:
        if self.state is Taking.ENDED:
            return []
        self.state = Taking.ENDED
        return [Report(self._count, whole)]
