"""The order of a rolling upgrade: one worker after the other, events in, effects out. No processes, no clock.

A worker's number is its role, which two processes cannot have at a time. So the first worker hands over to a spare
number, the next one to the number that got free, and so on; at the end the spare hands over to the last number, and the
numbers are 0 to N-1 again. For each:

    phase      event                       next       effects
    IMPORTING  the new code is imported    STARTING   Start the new worker
    STARTING   the new worker runs         PROBING    Probe
    PROBING    it answers                  GIVING     Unwant the old one, Connect
    GIVING     all is handed over          ENDING
    GIVING     the old worker dies         STARTING   Start the next (its connections are lost, as in any crash)
    ENDING     the old worker has ended    STARTING   Start the next; after the last one DONE: Finished
    any        it takes too long           FAILED     in GIVING and ENDING instead: Kill the old one, which is stuck
    IMPORTING, STARTING, PROBING: a death or a failure
                                           FAILED     Unwant the new worker, Failed
    GIVING     the new worker dies, or the old one serves on
                                           FAILED     Want the old one, Unwant the new one, Failed

After FAILED as many workers run as before: those that are replaced have the new code, the others the old one.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple

from odradek.ipc.roles import FIRST_WORKER, MAX_WORKERS, ROLES, role_name


class Phase(enum.Enum):
    """What the roll waits for."""

    IMPORTING = "importing the installed code"
    STARTING = "starting"
    PROBING = "answering its first request"
    GIVING = "handing over"
    ENDING = "ending"
    DONE = "done"
    FAILED = "failed"


class Start(NamedTuple):
    """Start a worker of the installed code."""

    role: int


class Probe(NamedTuple):
    """Send the worker a first request."""

    role: int


class Connect(NamedTuple):
    """Let `old` hand over to `new`."""

    old: int
    new: int


class Want(NamedTuple):
    """Restart this worker if it ends."""

    role: int


class Unwant(NamedTuple):
    """Do not restart it. `end`: let it drain and end."""

    role: int
    end: bool


class Kill(NamedTuple):
    """It does not end by itself."""

    role: int


class Finished(NamedTuple):
    """All workers run the new code."""


class Failed(NamedTuple):
    """It is over; `why` is a line."""

    why: str


Effect = Start | Probe | Connect | Want | Unwant | Kill | Finished | Failed


class NoSpare(ValueError):
    """All numbers of workers are in use."""


class Roll:
    """One upgrade of the `workers`, which are roles."""

    def __init__(self, workers: Collection[int]) -> None:
        self.phase = Phase.IMPORTING
        self.workers = set(workers)
        self.replaced = 0
        self.old = self.new = 0
        self._left = sorted(workers)
        self._goal = set(range(FIRST_WORKER, FIRST_WORKER + len(self.workers)))
        if len(self.workers) >= MAX_WORKERS:
            raise NoSpare(
                f"all {MAX_WORKERS} worker numbers are in use: run `odradek scale --workers N` with fewer first"
            )

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.phase in (Phase.DONE, Phase.FAILED)

    # -- what goes well

    def imported(self) -> list[Effect]:
        """The installed code can be imported."""
        return self._begin_next() if self.phase is Phase.IMPORTING else []

    def runs(self) -> list[Effect]:
        """The new worker serves."""
        self.phase = Phase.PROBING
        return [Probe(self.new)]

    def answers(self) -> list[Effect]:
        """The new worker has answered."""
        self.phase = Phase.GIVING
        return [Unwant(self.old, False), Connect(self.old, self.new)]

    def handed_over(self) -> list[Effect]:
        """The old worker has nothing left but what it drains."""
        if self.phase is Phase.GIVING:
            self.phase = Phase.ENDING
        return []

    def _begin_next(self) -> list[Effect]:
        old = self._next_old()
        if old is None:
            self.phase = Phase.DONE
            return [Finished()]
        self.phase, self.old = Phase.STARTING, old
        self.new = next(role for role in range(FIRST_WORKER, ROLES) if role not in self.workers)
        return [Start(self.new)]

    def _next_old(self) -> int | None:
        """The next old worker; when all are new, one whose number is too high."""
        if self._left:
            return self._left.pop(0)
        return max(self.workers - self._goal, default=None)

    # -- what goes wrong

    def died(self, role: int) -> list[Effect]:
        """A worker has ended."""
        if role == self.old and self.phase in (Phase.GIVING, Phase.ENDING):
            self.workers = self.workers - {self.old} | {self.new}
            self.replaced += 1
            return self._begin_next()
        if role == self.new and self.phase in (Phase.STARTING, Phase.PROBING, Phase.GIVING):
            return self.failed(f"the new {role_name(role)} has ended")
        if role == self.old and self.phase in (Phase.STARTING, Phase.PROBING):
            return self.failed(f"{role_name(role)} has ended meanwhile")
        return []

    def late(self) -> list[Effect]:
        """The phase takes too long."""
        if self.phase in (Phase.GIVING, Phase.ENDING):
            return [Kill(self.old)]
        what = "the installed code" if self.phase is Phase.IMPORTING else f"the new {role_name(self.new)}"
        return self.failed(f"{what} took too long: {self.phase.value}")

    def failed(self, why: str) -> list[Effect]:
        """A step is not possible: what runs goes on."""
        if self.over or self.phase is Phase.ENDING:
            return []
        before, self.phase = self.phase, Phase.FAILED
        if before is Phase.IMPORTING:
            return [Failed(why)]
        back: list[Effect] = [Want(self.old)] if before is Phase.GIVING else []
        return [*back, Unwant(self.new, True), Failed(why)]
