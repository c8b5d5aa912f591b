"""Retry retriable errors with growing pauses; report others in one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kafka.errors import for_code

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.wire.settings import Settings

Found = TypeVar("Found")


class RetryLater(Exception):
    """An error that a retry may fix."""


class Retries:
    """How long to retry: kafka.default.api.timeout.ms."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ends = time.monotonic() + settings.api_timeout
        self._pause = settings.backoff

    def over(self) -> bool:
        """Whether to give up."""
        return time.monotonic() >= self._ends

    def allow(self, seconds: float) -> None:
        """Extend the time: a quota is no failure."""
        self._ends += seconds

    def pause(self, why: str) -> None:
        """Wait before the next try; PipelineError with the reason when the time is over."""
        if self.over():
            raise PipelineError(f"{why} (tried for {self._settings.api_timeout:g} s: kafka.default.api.timeout.ms)")
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, self._settings.backoff_max)


def insist(settings: Settings, attempt: Callable[[], Found]) -> Found:
    """Retry `attempt` while it raises RetryLater and return its result."""
    retries = Retries(settings)
    while True:
        try:
            return attempt()
        except RetryLater as later:
            retries.pause(str(later))


def check(code: int, what: str) -> None:
    """Nothing for Kafka's error 0; RetryLater for a retriable one, PipelineError for any other."""
    if code:
        error = for_code(code)
        raise (RetryLater if error.retriable else PipelineError)(f"{what}: {error.__name__}: {error.description}")
