"""One greenlet that serves all Kafka clients of a locust process, so that no client ever waits in C."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import gevent
from locust.log import greenlet_exception_logger

EVERY_SECONDS = 0.002

Serve = Callable[[], None]


class Pump:
    """Calls all added functions every two milliseconds, which is also the maximum delay of an event."""

    def __init__(self) -> None:
        self._serves: dict[Serve, None] = {}
        self._greenlet: gevent.Greenlet | None = None

    def add(self, serve: Serve) -> None:
        """Start calling `serve`; the first one starts the greenlet, which would not have survived locust's fork."""
        self._serves[serve] = None
        if self._greenlet is None:
            gevent.signal_handler(signal.SIGINT, _interrupted)
            self._greenlet = gevent.spawn(self._run)
            self._greenlet.link_exception(greenlet_exception_logger(logging.getLogger(__name__)))  # fails the run

    def remove(self, serve: Serve) -> None:
        """Stop calling `serve`."""
        self._serves.pop(serve, None)

    def _run(self) -> None:
        while self._serves:
            for serve in tuple(self._serves):
                if serve in self._serves:  # an earlier one may have removed it
                    serve()
            gevent.sleep(EVERY_SECONDS)
        self._greenlet = None


def _interrupted() -> None:
    """Runs in a greenlet of its own, and gevent raises its exception in the main one.

    Python's own handler may raise it in a callback of librdkafka, where confluent_kafka loses it: `poll` fails then.
    """
    raise KeyboardInterrupt
