"""A proxy in front of a real broker that forwards its responses and forges those that a test chooses.

It reports itself as the leader of each partition and the coordinator of each group, so clients send it all requests.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, COORDINATOR, CONFIGS, LOG_DIRS = 0, 1, 2, 3, 9, 10, 32, 35
_KNOWN: dict[int, tuple[Any, Any]] = {
    PRODUCE: (ProduceRequest, ProduceResponse),
    FETCH: (FetchRequest, FetchResponse),
    LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    METADATA: (MetadataRequest, MetadataResponse),
    OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse),
    CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    LOG_DIRS: (DescribeLogDirsRequest, DescribeLogDirsResponse),
}
Lie = Callable[[Any, Any], Any]
"""From a request and its true response to the response that is sent; None closes the connection."""


class StandIn:
    """Proxies the broker at `bootstrap`; a context manager. `lies` by API key may change at any time; `asked` has all
    requests of the known APIs, each with the monotonic seconds of its arrival."""

    def __init__(self, bootstrap: str, lies: dict[int, Lie] | None = None) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._broker = host, int(port)
        self.lies = lies or {}
        self.asked: list[tuple[float, Any]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in [self._listening, *self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, broker = self._listening.accept()[0], socket.create_connection(self._broker)
                self._open += [client, broker]
                self._threads.append(threading.Thread(target=self._serve, args=(client, broker), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), client, broker:
            while (question := _frame(client)) is not None:
                broker.sendall(_framed(question))
                answer = _frame(broker)
                said = None if answer is None else self._said(question, answer)
                if said is None:
                    return
                client.sendall(said)

    def _said(self, question: bytes, answer: bytes) -> bytes | None:
        key, version = struct.unpack_from(">hh", question)
        if key not in _KNOWN:
            return _framed(answer)
        kinds = _KNOWN[key]
        request = kinds[0].decode(question, version=version, header=True)
        head = 5 if kinds[1].flexible_version_q(version) else 4  # a correlation id and one byte of tagged fields
        true = kinds[1].decode(answer[head:], version=version)
        self.asked.append((time.monotonic(), request))
        for one in _places(key, true):
            one.host, one.port = "127.0.0.1", self._listening.getsockname()[1]
        true._header = None
        said = self.lies.get(key, lambda _, true: true)(request, true)
        return None if said is None else _framed(answer[:head] + bytes(said.encode(version=version)))


def _places(key: int, answer: Any) -> list[Any]:
    """All parts of a response that have a broker's address."""
    if key == METADATA:
        return list(answer.brokers)
    return (answer.coordinators or [answer]) if key == COORDINATOR else []


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _frame(peer: socket.socket) -> bytes | None:
    head = _exactly(peer, 4)
    return None if head is None else _exactly(peer, struct.unpack(">i", head)[0])


def _exactly(peer: socket.socket, count: int) -> bytes | None:
    """None at the end of the stream."""
    found = bytearray()
    while len(found) < count:
        part = peer.recv(count - len(found))
        if not part:
            return None
        found += part
    return bytes(found)
