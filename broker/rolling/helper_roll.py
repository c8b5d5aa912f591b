"""The order in which `odradek upgrade` replaces the processes beside the workers. Events in, effects out; no clock.

Each of them is the only one of its role, so the old one ends before the new one starts: in between, the others wait for
it (its listening socket, its channel), and no client gets an error for it. For each, the least risky first:

    phase     event                    next       effects
    WAITING   the workers are new      ENDING     End the first
    ENDING    the old one has ended    STARTING   (the supervisor starts the new one)
    ENDING    it takes too long        ENDING     Kill it
    STARTING  the new one runs         SETTLING
    SETTLING  it has lived for a while ENDING     End the next; after the last DONE: Finished
    STARTING, SETTLING: it dies        FAILED     Back: start the old code again, Failed
    STARTING  it takes too long        FAILED     Back, Kill it, Failed

After FAILED those that are replaced have the new code, the others the old one. A process that dies without having been
asked to, before its turn or after it, is the supervisor's subject: it starts it again, and the roll goes on.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from odradek.ipc import roles
from odradek.ipc.roles import role_name

ORDER = (
    roles.JANITOR, roles.EXPORTER, roles.REPLICATOR, roles.ACCEPTOR, roles.COORDINATOR, roles.CONTROLLER,
)  # fmt: skip


class HelperPhase(enum.Enum):
    """What the roll waits for."""

    WAITING = "waiting for the workers"
    ENDING = "ending"
    STARTING = "starting"
    SETTLING = "serving"
    DONE = "done"
    FAILED = "failed"


class End(NamedTuple):
    """End the process of this role; its successor has the installed code."""

    role: int


class Back(NamedTuple):
    """Start the process of this role from the former code again."""

    role: int


class KillHelper(NamedTuple):
    """It does not end by itself, or does not serve."""

    role: int


class HelpersReplaced(NamedTuple):
    """All run the new code."""


class HelperFailed(NamedTuple):
    """It is over; `why` is a line."""

    why: str


HelperEffect = End | Back | KillHelper | HelpersReplaced | HelperFailed


class HelperRoll:
    """One upgrade of the processes `wanted`, which are roles."""

    def __init__(self, wanted: Iterable[int]) -> None:
        present = set(wanted)
        self.phase = HelperPhase.WAITING
        self.role = -1
        self.replaced = 0
        self._left = [role for role in ORDER if role in present]

    @property
    def active(self) -> bool:
        """Whether a process is being replaced."""
        return self.phase in (HelperPhase.ENDING, HelperPhase.STARTING, HelperPhase.SETTLING)

    def begin(self) -> list[HelperEffect]:
        """All workers are replaced."""
        return self._next() if self.phase is HelperPhase.WAITING else []

    def _next(self) -> list[HelperEffect]:
        if not self._left:
            self.phase = HelperPhase.DONE
            return [HelpersReplaced()]
        self.phase, self.role = HelperPhase.ENDING, self._left.pop(0)
        return [End(self.role)]

    def ended(self) -> list[HelperEffect]:
        """The old process has ended, or there was none."""
        if self.phase is HelperPhase.ENDING:
            self.phase = HelperPhase.STARTING
        return []

    def runs(self) -> list[HelperEffect]:
        """The new process serves."""
        if self.phase is HelperPhase.STARTING:
            self.phase = HelperPhase.SETTLING
        return []

    def settled(self) -> list[HelperEffect]:
        """The new process has served for a while."""
        if self.phase is not HelperPhase.SETTLING:
            return []
        self.replaced += 1
        return self._next()

    def died(self, role: int) -> list[HelperEffect]:
        """A process has ended."""
        if role != self.role:
            return []
        if self.phase is HelperPhase.ENDING:
            return self.ended()
        if self.phase in (HelperPhase.STARTING, HelperPhase.SETTLING):
            return self.failed(f"the new {role_name(role)} has ended")
        return []

    def late(self) -> list[HelperEffect]:
        """The phase takes too long."""
        if self.phase is HelperPhase.ENDING:
            return [KillHelper(self.role)]
        if self.phase is not HelperPhase.STARTING:
            return []
        back, failed = self.failed(f"the new {role_name(self.role)} took too long: {self.phase.value}")
        return [back, KillHelper(self.role), failed]

    def failed(self, why: str) -> list[HelperEffect]:
        """A step is not possible: the process of the former code is started again."""
        if not self.active:
            return []
        self.phase = HelperPhase.FAILED
        return [Back(self.role), HelperFailed(why)]
