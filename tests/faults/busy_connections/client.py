"""One process of many raw connections: each sends a Produce request of one record every PERIOD seconds, and waits.

A line on stdin asks for what has happened since the last one: `measure`, or `stop`, which first waits for all answers.
The answer is a JSON line. Times are from the moment at which a request was due to be sent, so that a client that is
late itself counts against the broker rather than for it; `own_ms` is the longest turn of the client's loop.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from typing import Any

from ...clients.raw.batches import batch
from ...clients.raw.calls import produce_request
from ..pipelining import framed

ANSWER_AT = 4 + 4 + 4 + 2  # size, correlation id, topics, and the length of the name; behind the name: partitions
SLOW_MS = 200


class Connection:
    """One connection."""

    def __init__(self, address: tuple[str, int], topic: str, partition: int, first: float) -> None:
        self.sock = socket.create_connection(address, 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.frame = framed(
            produce_request(topic, batch([b"x" * 100]), acks=-1, partition=partition, timeout_ms=30_000)
        )
        self.error_at = ANSWER_AT + len(topic) + 4 + 4
        self.due = first
        self.waits = False
        self.received = b""


class Clients:
    """All connections of this process."""

    def __init__(self, address: tuple[str, int], topic: str, partitions: int, count: int, period: float) -> None:
        now = time.monotonic()
        self.period = period
        self.all = [
            Connection(address, topic, n % partitions, now + 1 + period * n / count) for n in range(count)
        ]  # fmt: skip
        self.acked = 0  # since the start, told by the last report only
        self.faults: list[str] = []
        self.times: list[float] = []
        self.own = 0.0
        self.stopping = False
        self.selector = selectors.DefaultSelector()
        for one in self.all:
            self.selector.register(one.sock, selectors.EVENT_READ, one)
        self.selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> None:
        turned = time.monotonic()
        while not (self.stopping and not any(one.waits for one in self.all)):
            for key, _ in self.selector.select(0.005):
                self._listen() if key.data is None else self._try(self._take, key.data)
            now = time.monotonic()
            self.own, turned = max(self.own, now - turned), now
            if not self.stopping:
                for one in self.all:
                    if not one.waits and one.due <= now:
                        self._try(self._send, one)
        self._report()

    def _try(self, step: Any, one: Connection) -> None:
        try:
            step(one)
        except (OSError, EOFError, AssertionError) as error:
            self.faults.append(repr(error))
            self.selector.unregister(one.sock)
            one.waits, one.due = False, float("inf")

    def _send(self, one: Connection) -> None:
        assert one.sock.send(one.frame) == len(one.frame)
        one.waits = True

    def _take(self, one: Connection) -> None:
        data = one.sock.recv(65536)
        if not data:
            raise EOFError("the broker closed the connection")
        one.received += data
        if len(one.received) < 4 or len(one.received) < 4 + struct.unpack_from(">i", one.received)[0]:
            return
        (error,) = struct.unpack_from(">h", one.received, one.error_at)
        assert error == 0, f"error {error}"
        now = time.monotonic()
        self.times.append(now - one.due)
        self.acked += 1
        one.received, one.waits, one.due = b"", False, max(one.due + self.period, now)

    def _listen(self) -> None:
        if sys.stdin.readline().strip() == "measure":
            self._report()
        else:
            self.stopping = True

    def _report(self) -> None:
        times = sorted(self.times) or [0.0]
        found = {
            "acked": self.acked if self.stopping else 0, "faults": self.faults[:5], "requests": len(self.times),
            "longest_ms": round(times[-1] * 1000), "p50_ms": round(times[len(times) // 2] * 1000, 1),
            "p99_ms": round(times[len(times) * 99 // 100] * 1000, 1), "own_ms": round(self.own * 1000),
            "slow": sum(one * 1000 > SLOW_MS for one in times),
        }  # fmt: skip
        self.times, self.own = [], 0.0
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    Clients((host, int(port)), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])).run()
