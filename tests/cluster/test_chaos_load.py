"""The producers of chaos when their client library fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from .chaos.load import MODES, ByLibrdkafka
from .chaos.security import Clients


class FailingClient:
    """Acknowledges records at the next poll, but fails at the first one, as librdkafka has done."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self.failures = 0

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, decided: Callable[[Any, Any], None]
    ) -> None:
        self.waiting.append((value, decided))

    def poll(self, seconds: float) -> int:
        if not self.waiting:
            return 0
        value, decided = self.waiting.pop(0)
        if not self.failures:
            self.failures += 1
            raise SystemError("exception <class 'str'> is not a BaseException subclass")
        decided(None, SimpleNamespace(value=lambda: value, partition=lambda: 0, offset=lambda: 7))
        return 1

    def __len__(self) -> int:
        return len(self.waiting)

    def close(self) -> None:
        """The client holds no resources."""


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> ByLibrdkafka:
    monkeypatch.setattr("tests.cluster.chaos.load._librdkafka", lambda *_: FailingClient())
    return ByLibrdkafka(Clients.of("nowhere:1"), "t", 1, 3, MODES[0], 0.0)


def test_producer_continues_after_client_failure(producer: ByLibrdkafka) -> None:
    """Unreported records stay in doubt: sent, and not acknowledged."""
    for number in range(3):
        producer.history.sent[0] = number + 1
        producer._send(0, number, b"3 %d...." % number, b"k")
    producer._rest()
    assert producer.history.acked == {0: {}}
    assert producer._flushed(60)
    assert (producer.history.sent, producer.history.acked) == ({0: 3}, {0: {1: 7, 2: 7}})
    assert (list(producer.errors.values()), producer.problems) == ([1], [])
