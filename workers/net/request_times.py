"""Counts how long requests take, by API and stage (ipc.latencies). A clock of CLOCK_MONOTONIC in ns, no sockets.

A round of the event loop begins when its events are known. A request that later ones must not overtake is timed alone.
Pipelined requests are timed together, those of one flush, from the beginning of their round: none of them costs a call
of the clock. The counts are kept in lists, which cost a third of shared memory's words, and stored ten times a second.
An API gets its list with its first request: those of all take 0.3 MB in each worker, and 0.3 MB of its resident memory.
"""

from __future__ import annotations

from array import array
from time import monotonic_ns
from typing import TYPE_CHECKING

from odradek.ipc.latencies import AT_ONCE, KEYS, LOCAL, QUEUE, REMOTE, ROW, SEND, SUM, THROTTLE, TOTAL, WORDS

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection

_QUEUE, _LOCAL, _REMOTE, _TOTAL, _AT_ONCE = (stage * WORDS for stage in (QUEUE, LOCAL, REMOTE, TOTAL, AT_ONCE))
_THROTTLE, _SEND = THROTTLE * WORDS, SEND * WORDS


class RequestTimes:
    """Times the requests of a worker; `words` are its histograms, `pipelined` is the key of the API that is."""

    def __init__(self, words: memoryview, pipelined: int) -> None:
        self._words = words
        self._rows: dict[int, list[int]] = {}
        self._stored: dict[int, tuple[int, ...]] = {}
        self._pipelined = self._begin(pipelined)
        self.round_ns = monotonic_ns()  # when the round began

    def _begin(self, key: int) -> list[int]:
        row = self._rows[key] = self._words[key * ROW : (key + 1) * ROW].tolist()
        self._stored[key] = _spent(row)
        return row

    def store(self) -> None:
        """Store what was counted since the last call."""
        for key, row in self._rows.items():
            if (spent := _spent(row)) != self._stored[key]:
                self._words[key * ROW : (key + 1) * ROW] = memoryview(array("q", row))
                self._stored[key] = spent

    # -- a request that is not pipelined

    def taken(self, connection: Connection, key: int) -> None:
        """Its handler is called now."""
        row = self._rows.get(key)
        if row is None and 0 <= key < KEYS:
            row = self._begin(key)
        connection.times = row
        if row is not None:
            connection.received_ns = self.round_ns
            connection.begun_ns = now = monotonic_ns()
            queued = now - self.round_ns
            row[_QUEUE + queued.bit_length()] += 1
            row[_QUEUE + SUM] += queued

    def waits(self, connection: Connection) -> None:
        """Its handler has returned without an answer."""
        row = connection.times
        if row is not None:
            now = monotonic_ns()
            worked = now - connection.begun_ns
            row[_LOCAL + worked.bit_length()] += 1
            row[_LOCAL + SUM] += worked
            connection.waits_ns = now

    def answered(self, connection: Connection) -> None:
        """Its answer is there."""
        row = connection.times
        if row is not None:
            now, connection.times = monotonic_ns(), None
            if connection.waits_ns:
                stage, spent, connection.waits_ns = _REMOTE, now - connection.waits_ns, 0
            else:
                stage, spent = _LOCAL, now - connection.begun_ns
            row[stage + spent.bit_length()] += 1
            row[stage + SUM] += spent
            whole = now - connection.received_ns
            row[_TOTAL + whole.bit_length()] += 1
            row[_TOTAL + SUM] += whole

    # -- answers; most are sent at once and throttle no client: they cost nothing here

    def throttled(self, connection: Connection, throttle_ms: int) -> None:
        """The answer that comes next throttles its client."""
        row, throttle_ns = connection.times or self._pipelined, throttle_ms * 1_000_000
        row[_THROTTLE + throttle_ns.bit_length()] += 1
        row[_THROTTLE + SUM] += throttle_ns

    def sends(self, connection: Connection, row: list[int] | None) -> None:
        """The kernel did not take a whole answer; `row`: what `times` was before it, None for pipelined requests."""
        connection.sends_ns, connection.sends = monotonic_ns(), row or self._pipelined

    def sent(self, connection: Connection) -> None:
        """The kernel has taken all answers since `sends`."""
        row, spent, connection.sends_ns = connection.sends, monotonic_ns() - connection.sends_ns, 0
        row[_SEND + spent.bit_length()] += 1
        row[_SEND + SUM] += spent

    # -- pipelined requests

    def executed(self, count: int, waiting: int) -> None:
        """A flush has executed `count` requests, of which so many wait and the others are decided."""
        row, spent = self._pipelined, monotonic_ns() - self.round_ns
        if waiting:
            count -= waiting
            row[_LOCAL + spent.bit_length()] += waiting
            row[_LOCAL + SUM] += waiting * spent
        if count:
            row[_AT_ONCE + spent.bit_length()] += count
            row[_AT_ONCE + SUM] += count * spent

    def wait(self) -> tuple[int, int]:
        """What `decided` wants of requests of this round that wait from now on."""
        return self.round_ns, monotonic_ns()

    def decided(self, waiting: tuple[int, int], count: int) -> None:
        """`count` requests that have waited together are decided."""
        (received_ns, waits_ns), row, now = waiting, self._pipelined, monotonic_ns()
        waited, whole = now - waits_ns, now - received_ns
        row[_REMOTE + waited.bit_length()] += count
        row[_REMOTE + SUM] += count * waited
        row[_TOTAL + whole.bit_length()] += count
        row[_TOTAL + SUM] += count * whole


def _spent(row: list[int]) -> tuple[int, ...]:
    """Changes with every request: no work takes 0 ns, and no wait."""
    return row[_LOCAL + SUM], row[_REMOTE + SUM], row[_AT_ONCE + SUM], row[_THROTTLE + SUM], row[_SEND + SUM]
