"""Executes the Produce requests of a round, and answers those that are decided, in the order of their connections."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.protocol import produce
from odradek.protocol.produce import PartResult
from odradek.workers.net.connection_state import CLOSED
from odradek.workers.produce.batching import Batching, PendingBatch

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection
    from odradek.workers.quotas.request_quotas import RequestQuotas

log = logging.getLogger(__name__)

_PART = 500  # bytes of a request's part without its records, roughly


class ProduceResponses:
    """A worker's answers to Produce.

    `send(connection, data)` sends them, `settled(connection)` continues where no request is in flight any more.
    """

    def __init__(
        self, batching: Batching, send: Callable[[Connection, bytes], None],
        settled: Callable[[Connection], None], drop: Callable[[Connection, str], None],
    ) -> None:  # fmt: skip
        self._batching = batching
        self._send = send
        self._settled = settled
        self._drop = drop
        self.answered = 0  # requests
        self.quotas: RequestQuotas | None = None

    def flush(self) -> None:
        """Append and answer until nothing is left: an answered request may release others behind it."""
        batching = self._batching
        batching.flush()
        while batching.settling:
            settling, batching.settling = batching.settling, []
            for connection in settling:
                try:
                    self._settle(connection)
                except Exception:  # a bug costs this connection, not the others
                    log.exception("%r: cannot answer Produce", connection)
                    self._drop(connection, "closed after an internal error")
            if batching.touched:
                batching.flush()

    def _settle(self, connection: Connection) -> None:
        """Send the answers of decided requests, in request order, and continue behind them."""
        connection.settling = False
        if connection.state == CLOSED:
            return
        in_flight: Any = connection.in_flight
        throttle_ms = 0 if self.quotas is None else self.quotas.produced(connection)
        answers = []
        before = len(in_flight)
        while in_flight and in_flight[0].done:
            pending = in_flight.popleft()
            reply = pending.reply
            special = reply is None or pending.error or throttle_ms
            answer = answer_of(pending, throttle_ms) if special else reply(pending)
            if answer is not None:
                answers.append(answer)
            elif _refused_silently(pending):
                self._drop(connection, "closed: a Produce request with acks=0 failed")
                return
        self.answered += before - len(in_flight)
        if answers:
            self._send(connection, b"".join(answers))
        if connection.state and not in_flight:
            self._settled(connection)


class MultiPartitionProduce:
    """A request for any number of partitions, answered when all are decided. `taken`: all of them are in `parts`."""

    __slots__ = ("_open", "acks", "correlation", "parts", "taken", "version")

    reply = None

    def __init__(self, version: int, correlation: int, acks: int) -> None:
        self.version = version
        self.correlation = correlation
        self.acks = acks
        self.parts: list[PendingBatch] = []
        self._open: list[PendingBatch] = []
        self.taken = False

    def add(self, part: PendingBatch) -> None:
        """Add one of its partitions."""
        self.parts.append(part)
        if not part.done:
            self._open.append(part)

    @property
    def size(self) -> int:
        """Bytes of waiting records, plus the approximate overhead of all parts."""
        return _PART * len(self.parts) + sum(part.size for part in self._open)

    @property
    def done(self) -> bool:
        self._open = [part for part in self._open if not part.done]
        return self.taken and not self._open

    def answer(self, throttle_ms: int) -> bytes:
        """The response frame."""
        return produce.response(self.version, self.correlation, [_result(part) for part in self.parts], throttle_ms)


def _result(part: PendingBatch) -> PartResult:
    return PartResult(
        part.target.topic, part.target.index, part.error, part.base_offset, part.append_time, part.log_start,
        part.message, part.record_errors,
    )  # fmt: skip


def answer_of(pending: PendingBatch | MultiPartitionProduce, throttle_ms: int = 0) -> bytes | None:
    """The response frame of a decided request, None with acks=0."""
    if isinstance(pending, MultiPartitionProduce):
        return pending.answer(throttle_ms) if pending.acks else None
    if not pending.target.acks:
        return None
    return produce.response(pending.target.version, pending.correlation, [_result(pending)], throttle_ms)


def _refused_silently(pending: PendingBatch | MultiPartitionProduce) -> bool:
    """Whether a request with acks=0 failed: Kafka then closes the client's connection."""
    if isinstance(pending, MultiPartitionProduce):
        return not pending.acks and any(part.error for part in pending.parts)
    return not pending.target.acks and bool(pending.error)
