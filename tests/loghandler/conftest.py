"""Loggers that write to a topic, what they print, and what is in the topic."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.logging import KafkaHandler

from ..harness.process import wait_until

_numbers = itertools.count()
Attach = Callable[..., tuple[logging.Logger, KafkaHandler]]


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(servers, topic, …)`: a logger of its own with a handler, which is closed at the end of the test."""
    made: list[tuple[logging.Logger, KafkaHandler]] = []

    def make(servers: str, topic: str, **options: Any) -> tuple[logging.Logger, KafkaHandler]:
        logger = logging.getLogger(f"handler-test-{next(_numbers)}")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        handler = KafkaHandler(servers, topic, **{"close_timeout": 0.2, **options})
        logger.addHandler(handler)
        made.append((logger, handler))
        return made[-1]

    yield make
    for logger, handler in made:
        handler.close()
        logger.removeHandler(handler)


class Stderr:
    """What the test's process has printed on stderr so far."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self._text = ""

    @property
    def text(self) -> str:
        """All of it."""
        self._text += self._capture.readouterr().err
        return self._text

    def wait_for(self, words: str) -> str:
        """Wait until a line has these words; returns that line."""
        wait_until(lambda: words in self.text, 60, f"{words!r} on stderr")
        return next(line for line in self.text.splitlines() if words in line)


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Stderr:
    return Stderr(capsys)


def exit_code(pid: int) -> int:
    """Of a forked child, when it ends; AssertionError, and its death, when it hangs."""
    try:
        _, status = wait_until(lambda: _ended(os.waitpid(pid, os.WNOHANG)), 60, "the child ends")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return os.waitstatus_to_exitcode(status)


def _ended(found: tuple[int, int]) -> tuple[int, int] | None:
    return found if found[0] else None
