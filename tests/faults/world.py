"""A broker under load: three producers on the same partitions, and two readers at their end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..clients.admin import create_topic
from ..clients.raw.calls import list_offsets
from ..harness.process import wait_until
from . import load
from .checker import faults
from .load import Producer, Tail

PARTITIONS = 3
STALL_S = 2.0
SMALL_SEGMENTS = {"segment_bytes": 60_000, "index_interval_bytes": 1000}


class World:
    """The load on one broker; `verify` stops it and judges."""

    def __init__(self, broker: Any, *, pause: float = 0.02) -> None:
        self.broker = broker
        self.topic = create_topic(broker, "shared", PARTITIONS, **SMALL_SEGMENTS)
        self.producers = [self.producer(number, idempotent=number != 2, pause=pause) for number in range(3)]
        self.tails = [Tail(broker.bootstrap, self.topic, PARTITIONS, number) for number in range(2)]

    def producer(self, number: int, **options: Any) -> Producer:
        return Producer(self.broker.bootstrap, self.topic, PARTITIONS, number, **options)

    @property
    def clients(self) -> list[Any]:
        return [*self.producers, *self.tails]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load over the block."""
        with load.running(self.clients):
            self.await_more()
            yield

    def await_more(self, more: int = 30, seconds: float = 60) -> None:
        """Wait until every producer makes progress."""
        load.await_more(self.producers, more, seconds, lambda: self.broker.log[-6000:])

    @property
    def acked(self) -> int:
        """Records acknowledged to all producers."""
        return sum(producer.history.count for producer in self.producers)

    def longest_gap(self) -> float:
        """Seconds that a client waited at most for the next answer on a connection that lived."""
        return max(client.longest_gap for client in self.clients)

    def longest_greeting(self) -> float:
        """Seconds that a client waited at most for the first answer on a new connection."""
        return max(client.longest_greeting for client in self.clients)

    def verify(self) -> None:
        """After `running`: all promises are kept, and the directory passes `odradek check`."""
        problems = [problem for client in self.clients for problem in client.problems]
        assert not problems, f"{problems[:5]}\n{self.broker.log[-4000:]}"
        log = everything(self.broker, self.topic)
        found = faults([one.history for one in self.producers], log, [tail.log for tail in self.tails])
        assert not found, "\n".join([f"{len(found)} faults", *found[:10], self.broker.log[-6000:]])
        for tail in self.tails:
            assert any(tail.log.values()), "a reader that saw nothing proves nothing"
        self.broker.stop()
        checked(self.broker)
        self.broker.start()


def everything(broker: Any, topic: str, partitions: int = PARTITIONS) -> Any:
    """All records of a topic, read from its start."""
    with broker.wire() as wire:
        ask = lambda at, partition: wait_until(lambda: _offset(wire, topic, partition, at), what="offsets")  # noqa: E731
        starts = {partition: ask(-2, partition)[0] for partition in range(partitions)}
        ends = {partition: ask(-1, partition)[0] for partition in range(partitions)}
    return load.read_all(broker.bootstrap, topic, ends, starts)


def _offset(wire: Any, topic: str, partition: int, timestamp: int) -> tuple[int] | None:
    found = list_offsets(wire, topic, timestamp, partition=partition)
    return None if found.error_code else (found.offset,)


def checked(broker: Any) -> None:
    """`odradek check` finds nothing; the broker is stopped."""
    done = broker.command("check", str(broker.data_dir))
    assert done.returncode == 0, f"odradek check: {done.stdout[-3000:]}{done.stderr[-2000:]}\n{broker.log[-3000:]}"


def await_role(broker: Any, role: str, count: int, seconds: float = 30) -> None:
    """Wait until `count` processes of `role` run again, whichever."""
    wait_until(lambda: len(broker.pids(role)) >= count, seconds, f"{count} {role} again")


def settled(world: World, seconds: float = 0.3) -> None:
    """A little undisturbed load."""
    time.sleep(seconds)
    world.await_more()
