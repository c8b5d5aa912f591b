"""Clients that do not retry: one thread each repeats a call, and `faults` has what went wrong."""

from __future__ import annotations

import itertools
import struct
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from ..clients.transactions import Confluent
from ..harness.process import wait_until

OFFSET_COMMIT, FIND_COORDINATOR, CREATE_TOPICS = 8, 10, 19
_PAUSE_S = 0.003


class SteadyClient:
    """Repeats `call` until `finish`; `call` raises AssertionError or OSError if the answer is an error."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self.name = name
        self.count = 0
        self.longest = 0.0  # s: the longest call
        self.faults: list[str] = []
        self._call = call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and len(self.faults) < 10:
            began = time.monotonic()
            try:
                self._call()
            except (AssertionError, OSError, EOFError) as error:
                self.faults.append(f"{self.name} after {self.count}: {error!r}")
            self.count += 1
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(_PAUSE_S)

    def await_more(self, more: int = 5) -> None:
        """Wait until it has made some more calls."""
        goal = self.count + more
        wait_until(lambda: self.count >= goal or self.faults, 120, f"{self.name} goes on")
        assert self.faults == [], self.faults[:3]

    def finish(self) -> None:
        """Stop, and show what went wrong."""
        self._stop.set()
        self._thread.join(60)
        assert self.faults == [], self.faults[:3]


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def commits(broker: Any, topic: str) -> SteadyClient:
    """Commits of a group without members, on one connection: the coordinator's."""
    wire, offsets = broker.wire(60), itertools.count()

    def commit() -> int:
        offset = next(offsets)
        body = _text("steady") + struct.pack(">i", -1) + _text("") + struct.pack(">qi", -1, 1) + _text(topic)
        answer = wire.ask(OFFSET_COMMIT, 2, body + struct.pack(">iiqh", 1, 0, offset, -1))
        (error,) = struct.unpack(">h", answer[-2:])
        return int(error)

    def call() -> None:
        assert (error := commit()) == 0, f"error {error} of OffsetCommit"

    wire.ask(FIND_COORDINATOR, 0, _text("steady"))
    wait_until(lambda: commit() == 0, 60, "__consumer_offsets is there")

    return SteadyClient("commits", call)


def creations(broker: Any) -> SteadyClient:
    """New topics, on one connection: the controller's."""
    wire, names, prefix = broker.wire(60), itertools.count(), uuid.uuid4().hex

    def call() -> None:
        topic = _text(f"{prefix}-{next(names)}") + struct.pack(">ihii", 1, 1, 0, 0)
        answer = wire.ask(CREATE_TOPICS, 0, struct.pack(">i", 1) + topic + struct.pack(">i", 30_000))
        (error,) = struct.unpack(">h", answer[-2:])
        assert error == 0, f"error {error} of CreateTopics"
        time.sleep(0.2)  # topics cost

    return SteadyClient("creations", call)


def transactions(broker: Any, topic: str) -> SteadyClient:
    """Transactions of librdkafka, of one record each, number n being the n-th; any error that reaches the program."""
    producer, numbers = Confluent(broker, uuid.uuid4().hex), itertools.count()

    def call() -> None:
        try:
            producer.begin()
            producer.send(topic, b"%d" % next(numbers))
            producer.commit()
        except KafkaException as error:
            raise AssertionError(str(error)) from None

    return SteadyClient("transactions", call)


def connections(broker: Any) -> SteadyClient:
    """A new connection and one request each: the acceptor's."""

    def call() -> None:
        with broker.wire(60) as wire:
            assert wire.api_versions()

    return SteadyClient("connections", call)
