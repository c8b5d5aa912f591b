"""What a worker does with requests while client quotas are in force: counts them, and throttles their clients.

Bytes of Produce are those of its requests, bytes of Fetch those of its answers; the time of a request is the worker's
own, without waiting, and without the time that the coordinator or the controller takes. The client id is that of each
request (workers.net.client_ids). As in Kafka, a request counts when it is answered, a Fetch that is throttled is
answered without records and does not count, and the throttle time is the longer one of bytes and time.

Without quotas nothing here runs: `counted` and `timed` replace the functions that take requests only as long as this
object is in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.protocol.wire import I32
from odradek.workers.net import client_ids
from odradek.workers.net.connection_state import HOLD
from odradek.workers.quotas.quota_manager import FETCH, KINDS, PRODUCE, REQUEST, QuotaManager

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection
    from odradek.workers.net.request_times import RequestTimes

_HEADER = 8  # bytes of a request before its client id


class RequestQuotas:
    """The quotas of a worker's requests. `mute(connection, throttle_ms)` throttles a connection."""

    def __init__(self, manager: QuotaManager, mute: Callable[[Connection, int], None], times: RequestTimes) -> None:
        self._manager = manager
        self._mute = mute
        self._times = times
        self._taking: Connection | None = None
        self._since_ns = 0

    # -- requests in

    def counted(self, take: Callable[..., None]) -> Callable[..., None]:
        """The function that takes pipelined requests (workers.net.framing.Pipelined), and counts them.

        Where that much is pipelined that its client may exceed its quota by far, the next request waits for the answer.
        """

        def take_(
            services: Any, connection: Connection, version: int, correlation: int, view: memoryview, head: int,
            body: int, end: int,
        ) -> None:  # fmt: skip
            began_ns = time.perf_counter_ns()
            if not client_ids.is_same(connection, view, head):
                self._change_client(connection, view, head, end)
            connection.unrecorded += end - head + _HEADER
            take(services, connection, version, correlation, view, head, body, end)
            if connection.unrecorded > self._manager.most_at_once(connection.user, connection.client_id or ""):
                connection.state = HOLD[connection.state]
            connection.spent_ns += time.perf_counter_ns() - began_ns

        return take_

    def timed(self, take: Callable[..., None]) -> Callable[..., None]:
        """The function that takes other requests (workers.net.framing.Handler.take), and takes their time."""

        def take_(connection: Connection, *request: Any) -> None:
            self._taking, self._since_ns = connection, time.perf_counter_ns()
            connection.spent_ns = 0
            try:
                take(connection, *request)
            finally:
                if self._taking is connection:  # not answered yet
                    connection.spent_ns = time.perf_counter_ns() - self._since_ns
                    self._taking = None

        return take_

    def limits(self, connection: Connection) -> bool:
        """Whether the client has a quota of what it requests."""
        return any(self._manager.limits(kind, connection.user, connection.client_id or "") for kind in KINDS)

    def most_fetched(self, connection: Connection) -> float | None:
        """The bytes of an answer that the client's quota would allow in a whole window; None without a quota."""
        return self._manager.most_in_window(FETCH, connection.user, connection.client_id or "")

    # -- answers out

    def produced(self, connection: Connection) -> int:
        """The client's Produce requests are answered: count them; returns the throttle time."""
        size, connection.unrecorded = connection.unrecorded, 0
        spent_ns, connection.spent_ns = connection.spent_ns, 0
        now_ms = _now_ms()
        bytes_ms = self._record(PRODUCE, connection, size, now_ms)
        return self._throttle(connection, max(bytes_ms, self._record(REQUEST, connection, spent_ns, now_ms)))

    def fetched(self, connection: Connection, size: int) -> int:
        """A Fetch is answered with so many bytes, or, if this returns a throttle time, without records."""
        now_ms = _now_ms()
        time_ms = self._record(REQUEST, connection, self._spent_ns(connection), now_ms)
        throttle_ms = max(time_ms, self._record(FETCH, connection, size, now_ms))
        if throttle_ms:
            self._record(FETCH, connection, -size, now_ms)
        return self._throttle(connection, throttle_ms)

    def answered(self, connection: Connection, body: bytes, throttle_at: int, least_ms: int = 0) -> bytes:
        """Another request is answered with `body`; returns it with the throttle time at `throttle_at`, unless that
        is -1. The controller may have set one already, for a quota of controller mutations: in the body, or, where
        that has none, as `least_ms`."""
        spent_ns = self._spent_ns(connection)
        throttle_ms = max(least_ms, self._record(REQUEST, connection, spent_ns, _now_ms()))
        if throttle_at >= 0:
            throttle_ms = max(throttle_ms, I32.unpack_from(body, throttle_at)[0])
            if throttle_ms:
                body = body[:throttle_at] + I32.pack(throttle_ms) + body[throttle_at + I32.size :]
        self._throttle(connection, throttle_ms)
        return body

    def _record(self, kind: str, connection: Connection, amount: int, now_ms: int) -> int:
        return self._manager.record(kind, connection.user, connection.client_id or "", amount, now_ms)

    def _spent_ns(self, connection: Connection) -> int:
        spent_ns, connection.spent_ns = connection.spent_ns, 0
        if self._taking is connection:
            self._taking = None
            spent_ns += time.perf_counter_ns() - self._since_ns
        return spent_ns

    def _change_client(self, connection: Connection, view: memoryview, head: int, end: int) -> None:
        """Requests in flight have another client id than the next one: count them now, as they have none later.

        If they exceed a quota, the connection waits, though their answers do not say so."""
        if connection.unrecorded:
            self.produced(connection)
        client_ids.read(connection, view, head, end)

    def _throttle(self, connection: Connection, throttle_ms: int) -> int:
        if throttle_ms:
            self._times.throttled(connection, throttle_ms)
            self._mute(connection, throttle_ms)
        return throttle_ms


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
