"""An administrator during the faults: one thread that carries out its jobs in order.

A fault may make a request impossible until it is healed (the controller is away, a replica is dead), so no job
may block the thread that heals: that thread leaves jobs, and waits for them after the healing. A request is repeated
until its error codes show that it is done.
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
    """Jobs for one cluster; `problems` lists failed ones. Call `end` at last."""

    def __init__(self, chaos_cluster: ChaosCluster) -> None:
        self.problems: list[str] = []
        self._ground = chaos_cluster
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()  # in the creator's network namespace

    def do(self, job: Callable[[], None]) -> None:
        """Queue a job after the earlier ones; its AssertionError is a problem."""
        self._jobs.put(job)

    def ask(self, request: Callable[[Wire], list[int]], accepted: Iterable[int]) -> None:
        """Queue one request, which is done once all its error codes are accepted."""
        self.do(lambda: self.request(request, accepted))

    def settle(self) -> None:
        """Wait until all jobs are done or have failed."""
        self._jobs.join()

    def end(self) -> None:
        """Stop without waiting."""
        self._jobs.put(None)

    def request(self, request: Callable[[Wire], list[int]], accepted: Iterable[int]) -> None:
        """Send a request to the controller until all its codes are accepted; AssertionError after `PATIENCE_S`."""
        deadline, codes = time.monotonic() + PATIENCE_S, []
        good = {0, *accepted}
        while time.monotonic() < deadline:
            codes = self._once(request)
            if codes and good.issuperset(codes):
                return
            time.sleep(_PAUSE_S)
        why = f"the last error codes are {codes}" if codes else "the last attempt got no answer"
        raise AssertionError(f"administrator: the controller accepted no request within {PATIENCE_S} s; {why}")

    def _once(self, request: Callable[[Wire], list[int]]) -> list[int]:
        """The error codes of one attempt; [] without an answer."""
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
