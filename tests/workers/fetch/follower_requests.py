"""Requests of followers to a worker, one by one or in a session."""

from __future__ import annotations

from typing import Any

from odradek.ipc import replicas
from odradek.storage.segment.epochs import EpochCache

from ...clients.raw import batches
from ...harness.wire import decode_response
from ..inprocess import Bench, Client
from ..leading import produce, publish, request


def fill(bench: Bench, client: Client, count: int = 1, topic: str = "t") -> None:
    """Append `count` batches of one record, without acks from followers."""
    for n in range(count):
        client.send(produce(client, [b"%d" % n], acks=1, topic=topic))
        client.answers(1)


def values_in(part: Any) -> list[bytes | None]:
    """The records of a partition's answer."""
    return [record.value for record in batches.parse(part.records)]


def row_of(bench: Bench, broker: int) -> replicas.Replica:
    return next(row for row in replicas.read(bench.slot("t")) if row.broker == broker)


class InSession:
    """A follower in a session; `ask` sends a request, `answer` decodes the response: {partition: answer}."""

    def __init__(self, bench: Bench, broker: int, topic: str = "t", version: int = 12, wait_ms: int = 60_000) -> None:
        self.bench, self.broker, self.topic, self.version, self.wait_ms = bench, broker, topic, version, wait_ms
        self.client = bench.connect()
        self.session = self.epoch = 0
        self.error = 0
        self._asked: Any = None

    def ask(self, parts: list[Any], **options: Any) -> None:
        fields = {"session": self.session, "session_epoch": self.epoch, "wait_ms": self.wait_ms, **options}
        self._asked = request(self.broker, parts, topic=self.topic, version=self.version, **fields)
        self.client.send(self.client.frame(self._asked))
        self.bench.turn(3)

    def answered(self) -> dict[int, Any] | None:
        """The answer; None if there is none yet."""
        frames = self.client.frames()
        return self._take(frames[0]) if frames else None

    def answer(self) -> dict[int, Any]:
        (frame,) = self.client.answers(1)
        return self._take(frame)

    def _take(self, frame: bytes) -> dict[int, Any]:
        found = decode_response(self._asked, frame)
        self.error, self.session = found.error_code, found.session_id or self.session
        self.epoch += 1
        return {part.partition_index: part for topic in found.responses for part in topic.partitions}

    def open(self, parts: list[Any]) -> dict[int, Any]:
        self.ask(parts, wait_ms=0)
        return self.answer()


def write_epochs(bench: Bench, *entries: tuple[int, int]) -> None:
    EpochCache(entries).write(bench.root / "t-0")
    publish(bench, latest_epoch=entries[-1][0])
