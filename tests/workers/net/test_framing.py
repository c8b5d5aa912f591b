"""Framing, sending and slices together, without sockets: every short sequence of bytes and events, and a model.

The model: each request is taken once, in order. A request that is not pipelined waits until all before it are
answered; a pipelined one until those before it that are not pipelined are answered. Then it is taken at once, unless
the connection rests, has too much to send, or has expired. Answers keep the order of requests. After its last answer,
an expired connection holds all bytes after the last request that was taken.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ipc import latencies
from odradek.workers.net import connection_state, framing, sending, time_slices
from odradek.workers.net.connection import Connection
from odradek.workers.net.connection_state import CLOSED, EXPIRED, FULL, READY, RESTING, TAKING, UNANSWERED
from odradek.workers.net.framing import Framing, Pipelined
from odradek.workers.net.request_times import RequestTimes
from odradek.workers.net.sending import Sender
from odradek.workers.net.time_slices import TimeSlices

PIPELINED, AT_ONCE, LATER, COSTLY, GARBAGE, RENEWING = range(6)
ANSWER = 4  # bytes
LARGE = 60  # bytes of a request
MOST_UNSENT = ANSWER
MOST_STATES = 200_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_UNSENT", MOST_UNSENT)
    monkeypatch.setattr(framing, "MOST_IN_FLIGHT", 1100)  # two requests: 500 each, and their records
    buffer = bytearray(1 << 16)  # one for all connections, which is quicker
    monkeypatch.setattr(framing, "BUFFER", len(buffer))
    monkeypatch.setattr(framing, "mmap", SimpleNamespace(mmap=lambda *_: buffer))
    monkeypatch.setattr(framing, "LEAST_ROOM", 64)
    monkeypatch.setattr(framing, "MOST_RECEIVED", 1 << 14)
    monkeypatch.setattr(framing, "BIG_FRAME", 40)
    monkeypatch.setattr(framing, "BIG_HELD", 20)


class _Socket:
    """Takes `room` bytes."""

    def __init__(self) -> None:
        self.room, self.sent = 1 << 20, b""

    def fileno(self) -> int:
        return 3

    def send(self, data: bytes, flags: int) -> int:
        count = min(len(data), self.room)
        if not count:
            raise BlockingIOError
        self.sent, self.room = self.sent + data[:count], self.room - count
        return count


TIMES = RequestTimes(memoryview(bytearray(latencies.SIZE)).cast("q"), 0)  # no state of a front: one for all


class Front:
    """One connection, and the part of the worker that serves it."""

    def __init__(self, kinds: tuple[int, ...], sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds, self.now = kinds, 0.0
        monkeypatch.setattr(time_slices, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.stream = b"".join(_frame(kind, n, size) for n, (kind, size) in enumerate(zip(kinds, sizes, strict=True)))
        self.ends = [sum(14 + size for size in sizes[: n + 1]) for n in range(len(sizes))]
        self.arrived = 0
        self.taken: list[int] = []
        self.answered: list[int] = []
        self.waiting: list[int] = []  # taken, to be answered later
        self.sock = _Socket()
        self.connection = Connection(self.sock, "l", "h", 1)  # type: ignore[arg-type]  # a test double
        self.connection.mask = 1
        self.slices = TimeSlices(lambda one: self.framing.resume(one))
        self.framing = Framing(self, self._watch, self.slices.spend, 1 << 20, TIMES)
        self.framing.pipelined = Pipelined(PIPELINED, 0, 0, 99, self._take_pipelined, None)
        self.sender = Sender(self.drop, lambda *_: None, self.framing.resume, TIMES)
        self.reading = True
        self.renewed = False
        self.dropped = ""

    def _watch(self, connection: Connection, on: bool) -> None:
        self.reading = on

    # -- the worker's part

    def _take_pipelined(
        self,
        _: None,
        connection: Connection,
        version: int,
        number: int,
        view: memoryview,
        head: int,
        body: int,
        end: int,
    ) -> None:
        """Large requests take time, as with records that must be decoded."""
        self._check(number)
        assert bytes(view[body:end]) == bytes(end - body)
        if end - body == LARGE:
            self._spend()
        connection.in_flight.append(SimpleNamespace(size=50, number=number))

    def take(
        self, connection: Connection, key: int, version: int, number: int, view: memoryview, head: int, end: int
    ) -> None:
        self._check(number)
        assert not connection.in_flight
        if key == LATER:
            self.waiting.append(number)
        elif key == GARBAGE:
            raise ValueError("garbage")
        elif key == RENEWING:  # as in workers.authentication, which sends the answer
            self.answered.append(number)
            connection.state = connection_state.EXPIRE[connection_state.ANSWER[connection.state]]
            self.renewed = True
        else:
            if key == COSTLY:
                self._spend()
            self._answer(number)

    def _spend(self) -> None:
        for _ in range(2):
            self.slices.spend(self.connection)
            self.now += 1

    def _check(self, number: int) -> None:
        """Check that the request may be taken now."""
        assert number == len(self.taken)
        unanswered = [one for one in self.taken if one not in self.answered]
        assert not [one for one in unanswered if self.kinds[number] != PIPELINED or self.kinds[one] != PIPELINED]
        assert not self.connection.state & (FULL | RESTING | EXPIRED)
        self.taken.append(number)

    def _answer(self, number: int) -> None:
        self.answered.append(number)
        self.sender.answer_bytes(self.connection, struct.pack(">i", number))

    def flush(self) -> None:
        """The requests in flight wait for a lock."""

    def drop(self, connection: Connection, why: str) -> None:
        self.dropped = why
        connection.state = CLOSED

    def name_of(self, key: int) -> str:
        return str(key)

    # -- events; each returns whether it is possible

    def receive(self, count: int) -> bool:
        """The next bytes arrive, at most `count`."""
        if self.arrived == len(self.stream) or not self.reading or self.connection.closed:
            return False
        read = self.framing.receive(self.connection, lambda room: self._read(room, count))
        assert read or self.connection.state or not self.reading
        return True

    def _read(self, room: memoryview, count: int) -> int:
        data = self.stream[self.arrived : self.arrived + min(count, len(room))]
        assert data
        room[: len(data)] = data
        self.arrived += len(data)
        return len(data)

    def answer(self) -> bool:
        """The waiting request is answered."""
        if not self.waiting or self.connection.closed:
            return False
        self._answer(self.waiting.pop())
        return True

    def decide(self) -> bool:
        """The oldest request in flight is decided."""
        connection = self.connection
        if not connection.in_flight or connection.closed:
            return False
        number = connection.in_flight.popleft().number
        self.answered.append(number)
        self.sender.send_bytes(connection, struct.pack(">i", number))
        if not connection.in_flight:
            self.framing.settled(connection)
        return True

    def expire(self) -> bool:
        """The session ends."""
        if self.connection.closed or self.connection.state & EXPIRED:
            return False
        self.connection.state = connection_state.EXPIRE[self.connection.state]
        return True

    def stop(self) -> bool:
        """The client stops reading answers."""
        if not self.sock.room:
            return False
        self.sock.room = 0
        return True

    def read(self) -> bool:
        """The client reads again."""
        if self.sock.room:
            return False
        self.sock.room = 1 << 20
        if self.connection.out and not self.connection.closed:
            self.sender.send(self.connection)
        return True

    def turn(self) -> bool:
        """The next turn of the loop."""
        if not (self.slices.resting or self.sender.unfinished or self.framing.fill):
            return False
        self.slices.timed = None
        self.sender.send_unfinished()
        self.slices.wake()
        self.framing.fill = 0
        return True

    # -- the model

    def check(self) -> None:
        """No request waits that could be taken, and all answers are sent or queued, in order."""
        connection, sent = self.connection, self.sock.sent
        if connection.closed:
            assert self.dropped.startswith("malformed"), (
                "an assertion above failed: framing treats it as a bug of the handler"
            )
            return
        sent += b"".join(connection.out)  # type: ignore[arg-type]  # no slices of files here
        told = [number for number in self.answered if self.kinds[number] != RENEWING]
        assert [number for (number,) in struct.iter_unpack(">i", sent)] == told
        assert self.answered == sorted(self.answered)
        assert connection.out_size == len(sent) - len(self.sock.sent)
        whole = sum(end <= self.arrived for end in self.ends)
        assert (len(self.taken) == whole) or connection.state, "a request waits without a reason"
        assert self.reading or connection.state, "the connection is never read again"
        assert bool(connection.state & RESTING) == (connection in self.slices.resting)
        assert not connection.state & TAKING
        if connection.state & UNANSWERED:
            assert self.waiting or connection.in_flight
        if connection.state & EXPIRED and not (connection.in_flight or connection.out or connection.waits):
            assert self._left() == self.stream[self.ends[len(self.taken) - 1] if self.taken else 0 : self.arrived]
        held = 0 if connection.backlog is None else connection.backlog[2] - connection.backlog[1]
        assert held <= self.arrived

    def _left(self) -> bytes:
        """The bytes that stay with an expired connection."""
        connection, backlog = self.connection, self.connection.backlog
        assert not (backlog and connection.partial)
        if connection.big is not None:
            return bytes(connection.big[: connection.big_fill])
        return bytes(backlog[0][backlog[1] : backlog[2]]) if backlog else connection.partial

    def key(self) -> tuple[object, ...]:
        """The state on which later events depend."""
        connection, backlog = self.connection, self.connection.backlog
        return (
            self.arrived, len(self.taken), tuple(self.answered), connection.state, bytes(connection.partial),
            connection.big_fill if connection.big else -1, backlog and bytes(backlog[0][backlog[1] : backlog[2]]),
            len(connection.in_flight), connection.out_size, bool(self.sock.room), self.reading, self.framing.fill,
            connection in self.sender.unfinished,
        )  # fmt: skip


def _frame(kind: int, number: int, size: int) -> bytes:
    return struct.pack(">ihhih", 10 + size, kind, 0, number, 0) + bytes(size)


ACTIONS = [
    *[("receive", count) for count in (9, 1 << 16)], ("answer",), ("decide",), ("stop",), ("read",), ("turn",),
]  # fmt: skip
STREAMS = {  # with the states that must occur between two calls
    (PIPELINED, AT_ONCE, PIPELINED, LATER): {READY, UNANSWERED, RESTING},
    (LATER, PIPELINED, PIPELINED, PIPELINED): {READY, UNANSWERED, FULL},
    (PIPELINED, PIPELINED, PIPELINED, AT_ONCE): {READY, UNANSWERED, FULL, FULL | UNANSWERED},
    (COSTLY, COSTLY, PIPELINED, LATER): {READY, UNANSWERED, FULL, RESTING, FULL | RESTING},
    (PIPELINED, LATER, COSTLY, PIPELINED): {READY, UNANSWERED, RESTING},
    (AT_ONCE, AT_ONCE, AT_ONCE, AT_ONCE): {READY, FULL},
    (AT_ONCE, PIPELINED, GARBAGE, LATER): {READY, UNANSWERED, CLOSED},
}


def _named(kinds: Iterable[tuple[int, ...]]) -> list[Any]:
    return [pytest.param(one, id="".join("PALCGR"[kind] for kind in one)) for one in kinds]


def _walk(
    kinds: tuple[int, ...], sizes: list[int], monkeypatch: pytest.MonkeyPatch, actions: list[tuple[Any, ...]] = ACTIONS
) -> Iterator[Front]:
    """A front in every state that any sequence of actions leads to, checked after each action."""
    seen: set[tuple[object, ...]] = set()
    todo: deque[tuple[tuple[Any, ...], ...]] = deque([()])
    while todo:
        way = todo.popleft()
        for action in actions:
            front = Front(kinds, sizes, monkeypatch)
            for name, *given in (*way, action):
                can = getattr(front, name)(*given)
            if not can:
                continue
            front.check()
            if front.key() not in seen:
                assert len(seen) < MOST_STATES
                seen.add(front.key())
                todo.append((*way, action))
                yield front


@pytest.mark.parametrize("kinds", _named(STREAMS))
def test_every_sequence_of_bytes_and_events_follows_the_model(
    kinds: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    met: set[int] = set()
    done = 0
    for front in _walk(kinds, [0, 7, LARGE, 0], monkeypatch):
        met.add(front.connection.state)
        done += len(front.answered) == len(kinds) or front.connection.closed
    assert done, "no sequence led to the end"
    assert met >= STREAMS[kinds]


SESSIONS = {  # as STREAMS
    (PIPELINED, LATER, AT_ONCE): {EXPIRED, EXPIRED | UNANSWERED, EXPIRED | FULL, READY},
    (COSTLY, PIPELINED, PIPELINED): {EXPIRED, EXPIRED | RESTING, EXPIRED | FULL},
    (PIPELINED, RENEWING, PIPELINED): {EXPIRED, EXPIRED | UNANSWERED},
    (AT_ONCE, RENEWING, RENEWING): {EXPIRED},
}


@pytest.mark.parametrize("kinds", _named(SESSIONS))
def test_session_that_ends_at_any_time_follows_the_model(
    kinds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    met: set[int] = set()
    for front in _walk(kinds, [0, LARGE, 7], monkeypatch, [*ACTIONS, ("expire",)]):
        met.add(front.connection.state)
        if front.renewed:
            assert len(front.taken) == kinds.index(RENEWING) + 1, "no request is taken after it"
    assert met >= SESSIONS[kinds]
