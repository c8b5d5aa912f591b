"""The channels to the coordinator and the controller in the worker's event loop."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import Protocol

from odradek.ipc.forward import Forwarded
from odradek.workers.forwarding.upstream import Upstream


class Watching(Protocol):
    """The event loop (workers.net.loop)."""

    def watch(self, fd: int, handler: Callable[[int], None]) -> None: ...
    def rewatch(self, fd: int, events: int) -> None: ...
    def unwatch(self, fd: int) -> None: ...


class UpstreamLinks:
    """Connects, sends and receives."""

    def __init__(self, loop: Watching) -> None:
        self._loop = loop

    def tick(self, process: Upstream) -> None:
        """Connect to a process that listens again, and end requests that wait for too long."""
        if process.connect():
            link = process.channel
            assert link is not None
            self._loop.watch(link.fileno(), partial(self._on_events, process))
            self._watch_writes(process)
        process.tick()

    def send(self, process: Upstream, request: Forwarded, answered: Callable[[int, bytes], None]) -> None:
        """Send a request to the coordinator or the controller; calls `answered(flags, body)` once."""
        process.send(request, answered)
        self._watch_writes(process)

    def _watch_writes(self, process: Upstream) -> None:
        link = process.channel
        if link is not None and link.wants_write:
            self._loop.rewatch(link.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _on_events(self, process: Upstream, events: int) -> None:
        link = process.channel
        assert link is not None
        fd = link.fileno()
        link.flush()
        process.receive(lambda: self._loop.unwatch(fd))
        if process.channel is not None:
            self._loop.rewatch(fd, select.EPOLLIN | (select.EPOLLOUT if link.wants_write else 0))
