"""One greenlet that serves all Kafka clients of a locust process, so that none of them ever waits in C."""

from __future__ import annotations

import logging
from collections.abc import Callable

import gevent
from locust.log import greenlet_exception_logger

EVERY_SECONDS = 0.002

Serve = Callable[[], None]


class Pump:
    """Calls all that was added every two milliseconds, which is also how late an event may be seen."""

    def __init__(self) -> None:
        self._serves: dict[Serve, None] = {}
        self._greenlet: gevent.Greenlet | None = None

    def add(self, serve: Serve) -> None:
        """From now on; the first one starts the greenlet, which locust's fork would not have carried over."""
        self._serves[serve] = None
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)
            self._greenlet.link_exception(greenlet_exception_logger(logging.getLogger(__name__)))  # fails the run

    def remove(self, serve: Serve) -> None:
        """No more."""
        self._serves.pop(serve, None)

    def _run(self) -> None:
        while self._serves:
            for serve in tuple(self._serves):
                if serve in self._serves:  # an earlier one may have removed it
                    serve()
            gevent.sleep(EVERY_SECONDS)
        self._greenlet = None
