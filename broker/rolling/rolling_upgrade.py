"""The supervisor's part of `odradek upgrade`: starts processes of the installed code, tries them, has them take over.

New processes come from another fork server, which is started by exec and so imports what is installed now. The first
tests are that it can import it, and that it has the same layout of shared memory and of messages (process.versions).
Then broker.rolling.roll replaces the workers, and broker.rolling.helper_roll the other processes; the supervisor itself
stays. A new worker must answer ApiVersions on a connection of its own before it gets any other. Another process must
serve, and live for SETTLE_S. The new fork server takes the place of the former one when all are replaced, and ends if
the upgrade fails: until then the former one is the way back.

Interleavings. `turn`, `died` and the commands of the control bus run one after the other in the supervisor's loop.
- Two upgrades, or `odradek scale` during one: refused. Workers that an earlier `scale` retires still have their
  numbers: the upgrade waits for their end before it chooses a spare number.
- A stop during one: `close` ends the new fork server; all processes are children of the supervisor, which ends them.
- A process that dies before its turn: the usual fork server starts it again with the former code, then its turn comes.
  One that dies after its turn, while the upgrade goes on, gets the installed code.
- The new fork server dies: `spawn` starts the next process by exec, with the installed code all the same. If the
  former one dies, the way back has the installed code too, as exec knows no other.

Owner     : the supervisor; `turn` belongs to its loop and never waits.
Crash rule: the broker ends with its supervisor. A dead worker is broker.rolling.roll's subject.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from odradek.broker.errors import OdradekError
from odradek.broker.process import versions
from odradek.broker.rolling.helper_roll import (
    Back,
    End,
    HelperEffect,
    HelperFailed,
    HelperPhase,
    HelperRoll,
    HelpersReplaced,
    KillHelper,
)  # fmt: skip
from odradek.broker.rolling.roll import (
    Connect,
    Effect,
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
from odradek.ipc import channel, roles
from odradek.ipc.channel import Channel
from odradek.ipc.processes import ProcessTable
from odradek.ipc.roles import role_name
from odradek.workers.takeover import takeover_messages

log = logging.getLogger(__name__)

IMPORT_S = 120.0  # a busy machine
START_S = 60.0
PROBE_S = 20.0
END_S = 15.0  # for a process beside the workers, with its own limits (supervisor.stop_limits) in it
SETTLE_S = 0.5
_CORRELATION = 1
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)  # size, key, version, correlation id, no client id
_ANSWER = struct.Struct(">iih")  # size, correlation id, error


class InstalledCode(Protocol):
    """The code that is installed now, and what holds it ready (supervisor.forkserver_client, rolling.units)."""

    versions: dict[str, object]

    def is_ready(self) -> bool: ...
    def check(self) -> None: ...
    def close(self) -> None: ...

    @property
    def exists(self) -> bool:
        """Whether it is ready, or may be."""


Spawner = TypeVar("Spawner", bound=InstalledCode)


class Workers(Protocol):
    """What this needs of the supervisor."""

    def workers(self) -> set[int]:
        """The roles of the workers that should live."""

    def want(self, role: int) -> None:
        """Start it, and start it again when it dies."""

    def unwant(self, role: int, end: bool) -> None:
        """Do not start it again; `end`: SIGTERM."""

    def kill(self, role: int) -> None: ...
    def runs(self, role: int) -> bool: ...

    def retiring(self) -> bool:
        """Whether workers that should not live have not ended yet."""

    def helpers(self) -> set[int]:
        """The roles of the other processes that should live, without the supervisor."""

    def refusal(self, role: int) -> str:
        """Why this process cannot be replaced now, in a line; else ""."""

    def end(self, role: int) -> bool:
        """SIGTERM, after which it is started again; False: no process of this role lives."""


def refusal(table: ProcessTable, role: int) -> str:
    """Why a process must not be replaced now: a new controller cannot join while there is no ZooKeeper, nor could the
    former code then."""
    if role != roles.CONTROLLER or not table.get(role, "zookeeper_lost_ms"):
        return ""
    return "the broker has no connection to ZooKeeper (zookeeper.connect): upgrade again when it is back"


class RollingUpgrade(Generic[Spawner]):
    """At most one at a time. `begin` starts it, `turn` carries it on, `state` says how far it is."""

    def __init__(
        self,
        run_dir: Path,
        workers: Workers,
        renew: Callable[[], Spawner],
        adopt: Callable[[Spawner], None],
        drain_s: float,
    ) -> None:
        """`renew` starts a spawner of the installed code, `adopt` puts it into the place of the former one.

        `drain_s`: odradek.drain.timeout.ms, the most that a hand-over, and a drain after it, takes by itself.
        """
        self._run_dir = run_dir
        self._workers = workers
        self._renew = renew
        self._adopt = adopt
        self._drain_s = drain_s
        self._roll: Roll | None = None
        self._helpers = HelperRoll(())
        self._spawner: Spawner | None = None
        self._fresh: set[int] = set()  # roles whose processes come from `_spawner`
        self._probe: socket.socket | None = None
        self._door: Channel | None = None  # to the old worker, which tells how its hand-over ends
        self._until = 0.0
        self._phase: Phase | HelperPhase = Phase.DONE
        self._error = ""

    @property
    def active(self) -> bool:
        """Whether an upgrade is under way."""
        return self._roll is not None and (not self._roll.over or self._helpers.active)

    def ends(self, role: int) -> bool:
        """Whether the end of a process beside the workers is wanted now."""
        return self.replaces(role) and self._helpers.phase is HelperPhase.ENDING

    def replaces(self, role: int) -> bool:
        """Whether it is replacing this process beside the workers."""
        return self._helpers.active and self._helpers.role == role

    def state(self) -> dict[str, object]:
        """What `odradek upgrade` shows."""
        roll = self._roll
        return {
            "active": self.active,
            "error": self._error,
            "replaced": 0 if roll is None else roll.replaced + self._helpers.replaced,
            "phase": "" if roll is None else self._now(roll).value,
            "process": role_name(self._helpers.role) if self._helpers.active else "",
        }

    def _now(self, roll: Roll) -> Phase | HelperPhase:
        """The phase of what is being replaced."""
        return self._helpers.phase if self._helpers.active else roll.phase

    def begin(self) -> None:
        """Begin. Raises OdradekError."""
        if self.active:
            raise OdradekError("an upgrade is under way already; odradek status shows its processes")
        try:
            roll = Roll(self._workers.workers())
        except NoSpare as error:
            raise OdradekError(str(error)) from None
        self._spawner = self._renew()
        self._roll, self._error, self._phase = roll, "", Phase.DONE
        self._helpers = HelperRoll(self._workers.helpers())
        log.info("upgrade: replacing %d workers and then the others by the installed code", len(roll.workers))

    def spawner_of(self, role: int) -> Spawner | None:
        """The spawner of a process that must have the installed code; None: the usual one."""
        return self._spawner if role in self._fresh else None

    def died(self, role: int) -> None:
        """A process of the broker has ended."""
        if self._roll is not None and self.active:
            self._listen(self._roll)  # its last words
            self._apply(self._roll.died(role))
            self._apply_helpers(self._helpers.died(role))

    def check(self) -> None:
        """After SIGCHLD."""
        if self._spawner is not None:
            self._spawner.check()

    def close(self) -> None:
        """The broker stops."""
        self._forget_phase()
        if self._spawner is not None:
            self._spawner.close()
        self._roll = self._spawner = None
        self._helpers = HelperRoll(())
        self._fresh.clear()

    # -- a turn

    def turn(self) -> None:
        """Look whether what it waits for has come."""
        roll = self._roll
        if roll is None or not self.active:
            return
        self._follow_phase(self._now(roll))
        if roll.over:
            self._turn_helpers()
            return
        try:
            self._look(roll)
        except OSError as error:  # of sockets: the worker is about to be seen dead
            self._apply(roll.failed(f"{role_name(roll.new)}: {error.strerror or error}"))
        if not roll.over and self._is_late(roll.phase):
            self._apply(roll.late())

    def _turn_helpers(self) -> None:
        helpers = self._helpers
        if helpers.phase is HelperPhase.STARTING and self._workers.runs(helpers.role):
            self._apply_helpers(helpers.runs())
        elif self._is_late(helpers.phase):
            self._apply_helpers(helpers.settled() if helpers.phase is HelperPhase.SETTLING else helpers.late())

    def _is_late(self, phase: Phase | HelperPhase) -> bool:
        """Whether the time of the phase is over; then it begins again."""
        if phase is not self._phase or time.monotonic() < self._until:
            return False
        self._until = time.monotonic() + self._limit(phase)
        return True

    def _look(self, roll: Roll) -> None:
        if roll.phase is Phase.IMPORTING:
            self._look_at_spawner(roll)
        elif roll.phase is Phase.STARTING and self._workers.runs(roll.new):
            self._apply(roll.runs())
        elif roll.phase is Phase.PROBING and self._has_answered():
            self._apply(roll.answers())
        elif roll.phase is Phase.GIVING:
            self._listen(roll)

    def _look_at_spawner(self, roll: Roll) -> None:
        assert self._spawner is not None
        if self._spawner.is_ready():
            self._imported(roll, self._spawner.versions)
        elif not self._spawner.exists:
            self._apply(roll.failed("the installed code cannot be imported; the log says why"))

    def _imported(self, roll: Roll, installed: dict[str, object]) -> None:
        """Nothing is replaced yet."""
        differs = versions.difference(installed)
        if differs:
            self._apply(roll.failed(differs))
        elif not self._workers.retiring():
            self._apply(roll.imported())

    def _follow_phase(self, phase: Phase | HelperPhase) -> None:
        """Each phase has its time; so has each process in the same phase (`_forget_phase`)."""
        if phase is not self._phase:
            self._phase = phase
            self._until = time.monotonic() + self._limit(phase)

    def _limit(self, phase: Phase | HelperPhase) -> float:
        """Seconds. A worker has a margin over its own bound, before it is taken for stuck."""
        own: dict[Phase | HelperPhase, float] = {
            Phase.IMPORTING: IMPORT_S, Phase.STARTING: START_S, Phase.PROBING: PROBE_S,
            HelperPhase.ENDING: END_S, HelperPhase.STARTING: START_S, HelperPhase.SETTLING: SETTLE_S,
        }  # fmt: skip
        return own.get(phase, self._drain_s + START_S / 2)

    # -- effects

    def _apply(self, effects: Sequence[Effect]) -> None:
        actions: dict[type, Callable[[Any], None]] = {
            Start: lambda effect: self._start(effect.role),
            Probe: lambda effect: self._begin_probe(effect.role),
            Connect: lambda effect: self._connect(effect.old, effect.new),
            Want: lambda effect: self._workers.want(effect.role),
            Unwant: lambda effect: self._workers.unwant(effect.role, effect.end),
            Kill: lambda effect: self._workers.kill(effect.role),
            Finished: lambda _: self._apply_helpers(self._helpers.begin()),
            Failed: lambda effect: self._fail(effect.why),
        }
        for effect in effects:
            actions[type(effect)](effect)

    def _apply_helpers(self, effects: Sequence[HelperEffect]) -> None:
        actions: dict[type, Callable[[Any], None]] = {
            End: lambda effect: self._end(effect.role),
            Back: lambda effect: self._fresh.discard(effect.role),
            KillHelper: lambda effect: self._workers.kill(effect.role),
            HelpersReplaced: lambda _: self._finish(),
            HelperFailed: lambda effect: self._fail(effect.why),
        }
        for effect in effects:
            actions[type(effect)](effect)

    def _end(self, role: int) -> None:
        """From now on the process of this role is started from the installed code."""
        if why := self._workers.refusal(role):
            self._apply_helpers(self._helpers.failed(why))
            return
        self._forget_phase()
        self._fresh.add(role)
        if not self._workers.end(role):
            self._apply_helpers(self._helpers.ended())

    def _start(self, role: int) -> None:
        self._forget_phase()
        self._fresh.add(role)
        self._workers.want(role)

    def _begin_probe(self, role: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            link = channel.connect(self._run_dir / takeover_messages.door(role_name(role)))
            link.send(takeover_messages.PROBE, [theirs.fileno()])
            link.close()
        ours.setblocking(False)
        ours.send(_API_VERSIONS)
        self._probe = ours

    def _has_answered(self) -> bool:
        """Whether ApiVersions is answered without an error. Raises OSError."""
        assert self._probe is not None
        try:
            answer = self._probe.recv(65536)
        except BlockingIOError:
            return False
        if len(answer) < _ANSWER.size or _ANSWER.unpack_from(answer)[1:] != (_CORRELATION, 0):
            raise OSError("it does not answer ApiVersions")
        self._probe.close()
        self._probe = None
        return True

    def _connect(self, old: int, new: int) -> None:
        """Give both the ends of a channel. Of the supervisor's own copies none may stay: each would hide a death."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            taker = channel.connect(self._run_dir / takeover_messages.door(role_name(new)))
            taker.send(takeover_messages.TAKE_OVER, [theirs.fileno()])
            taker.close()
            self._door = channel.connect(self._run_dir / takeover_messages.door(role_name(old)))
            self._door.send(takeover_messages.HAND_OVER, [ours.fileno()])

    def _listen(self, roll: Roll) -> None:
        """Take what the old worker says of its hand-over."""
        if self._door is None:
            return
        try:
            messages = self._door.receive()
        except EOFError:  # its death is noticed where processes are reaped
            return
        for message in messages:
            if message[:1] == takeover_messages.DONE:
                self._apply(roll.handed_over())
            elif message[:1] == takeover_messages.FAILED:
                self._apply(roll.failed(f"{role_name(roll.old)} serves on: {message[1:].decode(errors='replace')}"))

    def _forget_phase(self) -> None:
        if self._probe is not None:
            self._probe.close()
        if self._door is not None:
            self._door.close()
        self._probe = self._door = None
        self._phase = Phase.DONE  # the time of the next phase begins, even if it is the same one

    def _finish(self) -> None:
        assert self._roll is not None
        assert self._spawner is not None
        self._forget_phase()
        self._adopt(self._spawner)
        self._spawner = None
        self._fresh.clear()
        count = len(self._roll.workers) + self._helpers.replaced
        log.info("upgrade: all %d processes but the supervisor run the installed code", count)

    def _fail(self, why: str) -> None:
        self._error = why
        log.error("upgrade: %s; what was not replaced goes on as before", why)
        self._forget_phase()
        self._fresh.clear()
        if self._spawner is not None:
            self._spawner.close()
            self._spawner = None
