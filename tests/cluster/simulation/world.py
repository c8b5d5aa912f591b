"""The simulated clock and its events, and the processes to which they happen.

An event happens to a process or (None) to no particular one. A process that waits inside an event, for a response of
ZooKeeper, lets others run meanwhile (`elapse`); its own events wait, unless it is killed.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

Action = Callable[[], object]
_DEEPEST = 4  # processes that wait at the same time
_OVERDUE_S = 1.0  # see `elapse`


class Killed(BaseException):
    """The running process was killed."""


class Process:
    """Handles one event after the other until it is killed. `stopped_until`: as by SIGSTOP."""

    def __init__(self, name: str, broker: int) -> None:
        self.name = name
        self.broker = broker
        self.alive = True
        self.busy = False
        self.stopped_until = 0.0
        self.effects_left = 0  # the process ends at the last of these effects; 0: it continues
        self.end: Action = lambda: None
        self.deferred: list[Event] = []

    def ready(self, descriptor: int, events: int) -> None:
        """A descriptor that the process polls is readable."""


def _of_process(name: str) -> Any:
    return property(lambda self: getattr(self.process, name), lambda self, value: setattr(self.process, name, value))


class Thread(Process):
    """A thread of a process: killed and stopped with it, and killed by the effects that are left to both."""

    alive, stopped_until, effects_left, end = map(_of_process, ("alive", "stopped_until", "effects_left", "end"))

    def __init__(self, process: Process) -> None:
        self.process = process
        self.name = f"{process.name}'s thread"
        self.broker = process.broker
        self.busy = False
        self.deferred = []


class Event(NamedTuple):
    at: float
    number: int
    process: Process | None
    action: Action


class World:
    """All events, in order. `checks` are called after each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.steps = 0
        self.checks: list[Action] = []
        self.trace: deque[str] = deque(maxlen=0)
        self.print = False
        self.running: list[Process] = []  # the innermost last
        self.unforeseen: BaseException | None = None
        self._events: list[Event] = []
        self._waits: list[float] = []  # until when the waiting processes wait, the innermost last
        self._number = 0
        self._nobody = False

    # -- chance

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random.random()

    # -- output

    @property
    def telling(self) -> bool:
        """Whether events are printed."""
        return self.print or self.trace.maxlen != 0

    def say(self, text: str) -> None:
        if self.telling:
            line = f"{self.now - 1000:9.4f}  {text}"
            self.trace.append(line)
            if self.print:
                print(line)

    # -- events

    def after(self, seconds: float, process: Process | None, action: Action) -> None:
        """Schedule `action` for `process`, if it is still alive then."""
        self._push(self.now + seconds, process, action)

    def _push(self, at: float, process: Process | None, action: Action) -> None:
        self._number += 1
        heapq.heappush(self._events, Event(at, self._number, process, action))

    def run(self, until: float, most: int = 1 << 60) -> None:
        """Run events until that moment, or `most` steps."""
        while self._events and self._events[0].at <= until and self.steps < most:
            event = heapq.heappop(self._events)
            self.now = max(self.now, event.at)
            self._happen(event)
            if self.unforeseen is not None:
                raise self.unforeseen
        self.now = max(self.now, until) if self.steps < most else self.now

    def _happen(self, event: Event) -> None:
        process = event.process
        if process is None:
            self._nobody = True
            try:
                event.action()
            finally:
                self._nobody = False
        elif not process.alive:
            return
        elif process.busy:
            process.deferred.append(event)
            return
        elif process.stopped_until > self.now:
            self._push(process.stopped_until, process, event.action)
            return
        else:
            self._run(process, event.action)
        self.steps += 1
        for check in self.checks:
            check()

    def _run(self, process: Process, action: Action) -> None:
        process.busy = True
        self.running.append(process)
        try:
            action()
        except Killed:
            pass
        finally:
            self.running.pop()
            process.busy = False
            deferred, process.deferred = process.deferred, []
            for event in deferred:
                self._push(self.now, process, event.action)

    def effect(self) -> None:
        """The running process is about to make a lasting change: a dying one may die here, a dead one changes nothing
        more. Killed.
        """
        if self._nobody or not self.running:
            return
        process = self.running[-1]
        if process.effects_left:
            process.effects_left -= 1
            if not process.effects_left:
                process.end()
        if not process.alive:
            raise Killed

    def elapse(self, seconds: float) -> None:
        """The running process waits. Raises Killed if it is killed meanwhile.

        A process that waits goes on only after those that began to wait later. While it is overdue by _OVERDUE_S, no
        other wait takes time: else busy processes could keep it waiting for ever.
        """
        process = self.running[-1] if self.running else None
        if len(self.running) <= _DEEPEST and not self._is_overdue() and self.unforeseen is None:
            try:
                self._wait(self.now + seconds)
            except Killed:
                raise
            except BaseException as error:  # another process's, which this one must not handle
                self.unforeseen = error
        while process is not None and process.alive and process.stopped_until > self.now and self.unforeseen is None:
            self.run(process.stopped_until)
        if process is not None and not process.alive:
            raise Killed

    def _wait(self, until: float) -> None:
        self._waits.append(until)
        try:
            self.run(until)
        finally:
            self._waits.pop()

    def _is_overdue(self) -> bool:
        return bool(self._waits) and self._waits[0] + _OVERDUE_S < self.now
