"""Raw connections that never reconnect and never retry: pipelined Produce requests, and fetches that wait.

One thread drives all. A frame is sent in two halves, with others in between, so that unfinished frames are about at any
time. Each producer has a partition of its own: the offset in an answer must be the number of the request. `faults` has
what went wrong; `gaps` the longest time of each producer without an answer, in seconds.
"""

from __future__ import annotations

import selectors
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..clients.raw.batches import batch
from ..clients.raw.calls import fetch_request, produce_request
from ..harness.wire import Wire, decode_response

IN_FLIGHT = 4
PERIOD_S = 0.1  # between two requests of a producer that keeps up
_STEP_S = 0.02


def framed(request: Any, correlation: int = 0) -> bytes:
    """A request of kafka-python as a frame."""
    request.with_header(correlation_id=correlation, client_id="pipelining")
    return bytes(request.encode(header=True, framed=True))


class _Connection:
    """A connection without blocking calls."""

    def __init__(self, wire: Wire) -> None:
        self.sock = wire.socket
        self.sock.setblocking(False)
        self._out: deque[bytes] = deque()
        self._received = b""

    def put(self, frame: bytes) -> None:
        half = len(frame) // 2
        self._out += [frame[:half], frame[half:]]

    def send_one(self) -> None:
        """Send one half of a frame."""
        if self._out:
            sent = self.sock.send(self._out[0])
            self._out[0] = self._out[0][sent:]
            if not self._out[0]:
                self._out.popleft()

    @property
    def sends(self) -> bool:
        return bool(self._out)

    def frames(self) -> list[bytes]:
        data = self.sock.recv(1 << 20)
        if not data:
            raise EOFError("the broker closed the connection")
        self._received += data
        found = []
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := _size(self._received)):
            found.append(self._received[4 : 4 + size])
            self._received = self._received[4 + size :]
        return found


def _size(data: bytes) -> int:
    (size,) = struct.unpack_from(">i", data)
    return int(size)


class _Producer(_Connection):
    def __init__(self, wire: Wire, topic: str, partition: int) -> None:
        super().__init__(wire)
        self.template = framed(produce_request(topic, batch([b"x" * 100]), acks=1, partition=partition))
        self._at = 4 + 4 + 2 + len(topic) + 4 + 4  # in an answer of version 7: behind the number of the partition
        self.sent = self.acked = 0
        self.next = 0.0
        self.last = time.monotonic()
        self.gap = 0.0

    def turn(self, now: float, more: bool) -> None:
        if more and now >= self.next and self.sent - self.acked < IN_FLIGHT:
            self.next = now + PERIOD_S
            for _ in range(IN_FLIGHT - (self.sent - self.acked)):
                self.put(self.template[:8] + struct.pack(">i", self.sent) + self.template[12:])
                self.sent += 1
        self.send_one()

    def take(self, now: float) -> None:
        for frame in self.frames():
            found = *struct.unpack_from(">i", frame), *struct.unpack_from(">hq", frame, self._at)
            if found != (self.acked, 0, self.acked):
                raise AssertionError(f"(correlation id, error, offset) {found} where {self.acked} was due")
            self.acked += 1
            self.gap, self.last = max(self.gap, now - self.last), now

    @property
    def waits(self) -> bool:
        return self.acked < self.sent or self.sends


class _Consumer(_Connection):
    """Fetches from offset 0 on; `wait_ms` for records."""

    def __init__(self, wire: Wire, topic: str, partition: int, wait_ms: int) -> None:
        super().__init__(wire)
        self._where = topic, partition, wait_ms
        self.offset = self.answers = self.asked = 0
        self._correlation = 0

    def turn(self, now: float, more: bool) -> None:
        if more and self.asked == self.answers:
            topic, partition, wait_ms = self._where
            self.request = fetch_request(topic, self.offset, partition=partition, wait_ms=wait_ms)
            self._correlation += 1
            self.put(framed(self.request, self._correlation))
            self.asked += 1
        self.send_one()

    def take(self, now: float) -> None:
        for frame in self.frames():
            assert struct.unpack_from(">i", frame) == (self._correlation,)
            part = decode_response(self.request, frame).responses[0].partitions[0]
            assert part.error_code == 0, f"error {part.error_code} of Fetch"
            self._walk(bytes(part.records or b""))
            self.answers += 1

    def _walk(self, records: bytes) -> None:
        """Each batch has one record."""
        while len(records) >= 12:
            base, length = struct.unpack_from(">qi", records)
            if len(records) < 12 + length:
                return
            assert base == self.offset, f"offset {base} where {self.offset} was due"
            self.offset, records = self.offset + 1, records[12 + length :]

    @property
    def waits(self) -> bool:
        return False


class Pipelines:
    """Runs until `finish`."""

    def __init__(self, producers: list[Wire], topic: str, consumers: list[Wire], idlers: list[Wire], idle: str) -> None:
        """Producer and consumer n use partition n of `topic`; `idlers` wait for records of `idle`, which gets none."""
        self.producers = [_Producer(wire, topic, number) for number, wire in enumerate(producers)]
        self.consumers = [_Consumer(wire, topic, number, 500) for number, wire in enumerate(consumers)]
        self.idlers = [_Consumer(wire, idle, 0, 20_000) for wire in idlers]
        self.faults: list[str] = []
        self.stall = 0.0  # s: the longest time without a turn of the thread, for which no broker is to blame
        self._turned = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def acked(self) -> int:
        """The number of answers to Produce so far."""
        return sum(one.acked for one in self.producers)

    @property
    def gap(self) -> float:
        """The longest time that a producer has waited for its next answer, in seconds."""
        return max(one.gap for one in self.producers)

    def measured(self) -> tuple[int, int]:
        """`gap` and `stall` in ms; both begin at 0 again."""
        found = round(self.gap * 1000), round(self.stall * 1000)
        self.stall = 0.0
        for one in self.producers:
            one.gap = 0.0
        return found

    def _all(self) -> list[Any]:
        return [*self.producers, *self.consumers, *self.idlers]

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one in self._all():
                selector.register(one.sock, selectors.EVENT_READ, one)
            while not self._stop.is_set() or any(one.waits for one in self.producers):
                self._turn(selector)
                if len(self.faults) > 10:
                    return

    def _turn(self, selector: selectors.DefaultSelector) -> None:
        ready = [key.data for key, _ in selector.select(_STEP_S)]
        now, more = time.monotonic(), not self._stop.is_set()
        self.stall, self._turned = max(self.stall, now - self._turned), now
        for one in ready:
            self._try(one, one.take, now)
        for one in self._all():
            self._try(one, one.turn, now, more)

    def _try(self, one: Any, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except BlockingIOError:
            pass
        except (OSError, EOFError, AssertionError) as error:
            self.faults.append(f"{type(one).__name__}: {error!r}")

    def finish(self) -> None:
        """Stop once all is answered."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive() or self.faults, "some requests have no answer"

    def close(self) -> None:
        """Close all connections."""
        self._stop.set()
        self._thread.join(60)
        for one in self._all():
            one.sock.close()
