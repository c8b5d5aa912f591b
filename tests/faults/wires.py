"""Hand-built requests that fault tests send by the thousand: Produce v7, Fetch v4, InitProducerId v0."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from odradek.protocol.records import varint

from ..clients.raw.batches import batch, record
from ..harness.process import readable
from ..harness.wire import header
from .checker import Found, key_of

PRODUCE, FETCH, INIT_PRODUCER_ID = 0, 1, 22


class Answer(NamedTuple):
    """One partition's part of a Produce answer."""

    correlation: int
    error: int
    base_offset: int


def record_batch(producer: int, first: int, count: int, identity: tuple[int, int] | None) -> bytes:
    """`count` records from number `first` on; with `identity` (producer id, epoch), an idempotent batch."""
    named: dict[str, Any] = {"producer": identity[0], "epoch": identity[1], "sequence": first} if identity else {}
    named["timestamp"] = time.time_ns() // 1_000_000
    values = [b"%d %d" % (producer, number) + b"." * 50 for number in range(first, first + count)]
    rows = [record(at, value, key_of(producer, first + at)) for at, value in enumerate(values)]
    return batch(values, payload=b"".join(rows), **named)


def produce(topic: str, partition: int, records: bytes, correlation: int, acks: int = -1) -> bytes:
    """A framed request."""
    name = topic.encode()
    body = struct.pack(f">hhiih{len(name)}siii", -1, acks, 10_000, 1, len(name), name, 1, partition, len(records))
    return _framed(header(PRODUCE, 7, correlation) + body + records)


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def produced(frame: bytes) -> Answer:
    """The answer to `produce`."""
    correlation, _, length = struct.unpack_from(">iih", frame)
    _, _, error, base = struct.unpack_from(">iihq", frame, 10 + length)
    return Answer(correlation, error, base)


def init_producer_id(correlation: int) -> bytes:
    """A framed request."""
    return _framed(header(INIT_PRODUCER_ID, 0, correlation) + struct.pack(">hi", -1, 60_000))


def producer_identity(frame: bytes) -> tuple[int, int] | None:
    """(producer id, epoch), None on an error."""
    _, _, error, producer, epoch = struct.unpack_from(">iihqh", frame)
    return None if error else (producer, epoch)


def fetch(topic: str, offsets: Mapping[int, int], correlation: int, wait_ms: int = 200) -> bytes:
    """A framed request for all of `offsets` (partition → offset)."""
    name = topic.encode()
    parts = b"".join(struct.pack(">iqi", *item, 1 << 20) for item in offsets.items())
    head = struct.pack(f">iiiibih{len(name)}si", -1, wait_ms, 1, 4 << 20, 0, 1, len(name), name, len(offsets))
    return _framed(header(FETCH, 4, correlation) + head + parts)


def fetched(frame: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(partition, error, records) of each partition in the answer to `fetch`."""
    (topics,) = struct.unpack_from(">i", frame, 8)
    if not topics:
        return
    (length,) = struct.unpack_from(">h", frame, 12)
    (count,) = struct.unpack_from(">i", frame, 14 + length)
    at = 18 + length
    for _ in range(count):
        partition, error, _, _, aborted = struct.unpack_from(">ihqqi", frame, at)
        at += 26 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", frame, at)
        at += 4
        yield partition, error, frame[at : at + max(size, 0)]
        at += max(size, 0)


def records_in(data: bytes, least: int) -> Iterator[Found]:
    """The records of whole batches from offset `least` on."""
    at = 0
    while at + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if at + 12 + size > len(data):
            return
        count = struct.unpack_from(">i", data, at + 57)[0]
        yield from _records(data, at + 61, base, count, least)
        at += 12 + size


def _records(data: bytes, at: int, base: int, count: int, least: int) -> Iterator[Found]:
    for _ in range(count):
        size, at = varint.decode(data, at)
        end = at + size
        _, at = varint.decode(data, at + 1)
        delta, at = varint.decode(data, at)
        length, at = varint.decode(data, at)
        key = data[at : at + length]
        length, at = varint.decode(data, at + length)
        if base + delta >= least:
            producer, number = data[at : at + length].rstrip(b".").split()
            yield Found(base + delta, int(producer), int(number), bytes(key))
        at = end


class Frames:
    """A connection that sends whole requests and returns whole answers as they arrive."""

    def __init__(self, bootstrap: str, timeout: float = 5) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def send(self, request: bytes) -> None:
        """Send a request; OSError when the connection is closed."""
        self.socket.sendall(request)

    def take(self, seconds: float) -> Iterator[bytes]:
        """The available answers, after up to `seconds` for the first; OSError or EOFError if it is closed."""
        if not readable(self.socket, seconds):
            return
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError("closed by the broker")
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                return
            frame = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            yield frame

    def close(self) -> None:
        self.socket.close()
