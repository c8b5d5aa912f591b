"""Two brokers that get the same requests of a follower; one of them caches no request."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from odradek.ipc import replicas
from odradek.storage.segment.epochs import EpochCache

from ...clients.raw import batches, calls
from ...harness.wire import decode_response
from ..inprocess import Bench
from ..leading import lead, part, publish, request

LONG_WAIT = 60_000
FOLLOWER = 1


class Side:
    """A broker, and its follower in a session; `memory`: whether it caches the follower's requests."""

    def __init__(self, bench: Bench, memory: bool) -> None:
        self.bench, self.memory = bench, memory
        self.producer, self.client = bench.connect(), bench.connect()
        self.session = self.epoch = self.remembered = 0
        self.broker, self.version = FOLLOWER, 13
        self._asked: Any = None

    def make_topic(self) -> None:
        """Create partitions that this broker leads in epoch 0, with the follower in their ISRs."""
        self.bench.topic("t", 3)
        for index in range(3):
            EpochCache([(0, 0)]).write(self.bench.root / f"t-{index}")
            lead(self.bench, [FOLLOWER, 2], [FOLLOWER], index=index)
            publish(self.bench, "t", index, latest_epoch=0)

    def produce(self, size: int = 10, index: int = 0) -> None:
        asked = calls.produce_request("t", batches.batch([b"x" * size], timestamp=1000), acks=1, partition=index)
        self.producer.call(asked)
        self.bench.turn(3)

    def ask(self, *parts: Any, wait_ms: int = LONG_WAIT, epoch: int | None = None, **options: Any) -> None:
        topic: Any = uuid.UUID(bytes=self.bench.id_of("t")) if self.version >= 13 else "t"
        self._asked = asked = request(
            self.broker, list(parts), topic=topic, version=self.version, wait_ms=wait_ms, session=self.session,
            session_epoch=self.epoch if epoch is None else epoch, **options,
        )  # fmt: skip
        connection = self.bench.connection(self.client)
        if not self.memory:
            connection.repeated = None
        former = connection.repeated
        self.client.send(self.client.frame(asked))
        self.bench.turn(3)
        self.remembered += former is not None and former is connection.repeated

    def answers(self) -> list[bytes]:
        """The answers so far, without correlation, session and topic ids; partitions in order."""
        found = []
        for frame in self.client.frames():
            at = 11 if self.version >= 12 else 10
            session = int.from_bytes(frame[at : at + 4], "big")
            self.session, self.epoch = session or self.session, self.epoch + 1
            found.append(self._in_order(frame[4:at] + frame[at + 4 :], decode_response(self._asked, frame)))
        return found

    def _in_order(self, content: bytes, decoded: Any) -> bytes:
        """The general code may answer partitions in another order."""
        parts = [part for topic in decoded.responses for part in topic.partitions]
        if len(parts) > 1:
            return b"".join(repr(part).encode() for part in sorted(parts, key=lambda part: part.partition_index))
        return content.replace(self.bench.id_of("t"), b"-" * 16)

    @property
    def waiting(self) -> bool:
        return bool(self.bench.connection(self.client).waits)

    def state(self) -> Any:
        """The session, the progress of followers, and the high watermarks."""
        session = self.bench.worker.sessions._sessions.get(self.session)
        kept = session and [
            session.epoch,
            sorted(part[1:] for part in session.parts.values()),
            sorted((index, told) for (_, index), told in session.last_sent.items()),
        ]
        rows = [
            [
                (r.broker, r.isr_status, r.leo, r.log_start, r.seen_leo)
                for r in replicas.read(self.bench.slot("t", index))
            ]
            for index in range(3)
        ]
        return kept, rows, [self.bench.slot("t", index).state().hw for index in range(3)], self.waiting


class Pair:
    def __init__(self, short: Bench, long: Bench) -> None:
        self.short, self.long = Side(short, True), Side(long, False)
        self.both = (self.short, self.long)
        self.do(Side.make_topic)
        for side in self.both:
            stop_ticks(side.bench)

    def do(self, what: Callable[[Side], Any]) -> None:
        for side in self.both:
            what(side)
            side.bench.turn(3)

    def same(self) -> list[bytes]:
        short, long = self.short.answers(), self.long.answers()
        assert short == long
        assert self.short.state() == self.long.state()
        return short

    def ask(self, *parts: Any, **options: Any) -> list[bytes]:
        self.do(lambda side: side.ask(*parts, **options))
        return self.same()

    def produce(self, *more: Any) -> list[bytes]:
        self.do(lambda side: side.produce(*more))
        return self.same()

    def publish(self, **changes: int) -> list[bytes]:
        self.do(lambda side: publish(side.bench, **changes))
        return self.same()

    def end_wait(self) -> list[bytes]:
        self.do(lambda side: side.bench.worker.purgatory.answer_all())
        return self.same()

    def follow(self, *indexes: int, version: int = 13) -> None:
        """Open the session, and move it to the log end of partition 0 by cached requests."""
        for side in self.both:
            side.version = version
        assert self.ask(*(part(0, index) for index in indexes or (0,)), wait_ms=0)
        for offset in range(3):
            self.ask(at(offset))
            assert self.produce()
        self.ask(at(3))
        assert self.short.remembered == 3 and not self.long.remembered


def stop_ticks(bench: Bench) -> None:
    """A tick would send the high watermark 50 ms after a request: before the other broker does, or the records."""
    bench.worker._next_tick = float("inf")


def at(offset: int, index: int = 0, **options: int) -> Any:
    return part(offset, index, **{"epoch": 0, "last_epoch": 0, **options})
