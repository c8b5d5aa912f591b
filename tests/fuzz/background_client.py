"""A well-behaved client with connections to every worker, while other clients misbehave.

It produces numbered records with acks=all and reads each back at once; every answer must be correct, and at the end
every acknowledged record must be there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..clients.admin import create_topic
from ..clients.raw.batches import batch, parse
from ..clients.raw.calls import fetch, produce
from ..harness.broker import Broker
from .watch import Watch

CONNECTIONS = 6  # the acceptor distributes them over the workers


class BackgroundClient:
    """One thread with its topic, until `finish`."""

    def __init__(self, broker: Any, pause: float = 0.005, timeout: float = 30) -> None:
        self._broker = broker
        self._pause = pause
        self.topic = create_topic(broker, "background")
        self._wires = [broker.wire(timeout) for _ in range(CONNECTIONS)]
        self.acked = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._once()
                time.sleep(self._pause)
        except BaseException as error:  # `check` raises it in the thread of the test
            self._error = error

    def _once(self) -> None:
        number = self.acked
        answer = produce(self._wires[number % CONNECTIONS], self.topic, batch([b"%d" % number]))
        assert (answer.error_code, answer.base_offset) == (0, number), answer
        self.acked += 1
        answer = fetch(self._wires[(number + 1) % CONNECTIONS], self.topic, number)
        values = [record.value for record in parse(answer.records)]
        assert (answer.error_code, values) == (0, [b"%d" % number]), (answer, values)

    def check(self) -> None:
        """Raise the error of the client, if any."""
        if self._error is not None:
            raise AssertionError(f"a background client failed after {self.acked} records") from self._error

    def await_more(self, more: int = 20, seconds: float = 60) -> None:
        """Wait until `more` further records are acknowledged."""
        wanted, deadline = self.acked + more, time.monotonic() + seconds
        while self.acked < wanted:
            self.check()
            assert time.monotonic() < deadline, f"stuck at {self.acked} records:\n{self._broker.log[-3000:]}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Stop, and read everything back."""
        self.await_more()
        self._stop.set()
        self._thread.join(60)
        self.check()
        with self._broker.wire() as wire:
            at = 0
            while at < self.acked:
                records = parse(fetch(wire, self.topic, at).records)
                assert [(r.offset, r.value) for r in records] == [(n, b"%d" % n) for n in range(at, at + len(records))]
                assert records, f"nothing at offset {at} of {self.acked}"
                at += len(records)
        for wire in self._wires:
            wire.close()


@contextmanager
def broker_with_client(
    folder: Path, patience: float = 30, **settings: Any
) -> Iterator[tuple[Broker, BackgroundClient]]:
    """A broker and a background client, which the block must not affect; both are checked at its end.

    `patience`: seconds in which each of its requests must be answered.
    """
    broker = Broker(folder, **settings)
    try:
        broker.start()
        watch, background = Watch(broker), BackgroundClient(broker, timeout=patience)
        yield broker, background
        background.finish()
        assert not watch.fault()
    finally:
        broker.close()
