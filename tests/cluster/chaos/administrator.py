"""An administrator during the faults: one thread that carries out its jobs in order.

A fault may make a request impossible until it is healed (the controller is away, a replica is dead), so nothing here
may hold up the thread that heals: it leaves jobs, and waits for them when all is healed. A request is sent again until
its codes say that it is done.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...harness.wire import Wire

if TYPE_CHECKING:
    from .chaos_cluster import ChaosCluster

PATIENCE_S = 240
_ANSWER_S = 15
_PAUSE_S = 0.2


class Administrator:
    """Jobs for one cluster; `problems` says what was not done. End it."""

    def __init__(self, chaos_cluster: ChaosCluster) -> None:
        self.problems: list[str] = []
        self._ground = chaos_cluster
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()  # in the network namespace of who makes it

    def do(self, job: Callable[[], None]) -> None:
        """Have it done after what was given before; an AssertionError of it is a problem."""
        self._jobs.put(job)

    def ask(self, request: Callable[[Wire], list[int]], accepted: Iterable[int]) -> None:
        """Like `do`, of one request: done once all its codes are among the accepted."""
        self.do(lambda: self.request(request, accepted))

    def settle(self) -> None:
        """Wait until all jobs are done or given up."""
        self._jobs.join()

    def end(self) -> None:
        """Do no more; returns at once."""
        self._jobs.put(None)

    def request(self, request: Callable[[Wire], list[int]], accepted: Iterable[int]) -> None:
        """Send it to the controller until all its codes are accepted; AssertionError after `PATIENCE_S`."""
        deadline, codes = time.monotonic() + PATIENCE_S, []
        good = {0, *accepted}
        while time.monotonic() < deadline:
            codes = self._once(request)
            if codes and good.issuperset(codes):
                return
            time.sleep(_PAUSE_S)
        raise AssertionError(f"administrator: answered {codes} for {PATIENCE_S} s")

    def _once(self, request: Callable[[Wire], list[int]]) -> list[int]:
        """Its codes; [] without an answer."""
        controller = self._ground.known_controller()
        if controller is None:
            return []
        try:
            with self._ground.wire(controller, _ANSWER_S) as wire:
                return request(wire)
        except (OSError, EOFError):
            return []

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
            finally:
                self._jobs.task_done()
