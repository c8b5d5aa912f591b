"""A raw connection to a broker: frames as bytes, and optionally kafka-python's schemas."""

from __future__ import annotations

import importlib
import io
import socket
import struct
from collections.abc import Iterable
from typing import Any

CLIENT_ID = "harness"


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """Read `count` bytes; EOFError if the peer closes the connection before."""
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 18))
        if not part:
            raise EOFError("the broker closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Wire:
    """A socket that speaks Kafka's framing: 4-byte size, then the request or response."""

    def __init__(self, bootstrap: str, timeout: float = 15, source: str = "") -> None:
        """`source`: the local address of the connection."""
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    # -- bytes

    def send_raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Write `body` with its size before it."""
        self.send_raw(struct.pack(">i", len(body)) + body)

    def read_exactly(self, count: int) -> bytes:
        """Read `count` bytes; EOFError if the peer closes the connection before."""
        return read_exactly(self.socket, count)

    def read_frame(self) -> bytes:
        """The next response without its size; EOFError if the peer has closed the connection."""
        (size,) = struct.unpack(">i", self.read_exactly(4))
        return self.read_exactly(size)

    def closed_by_peer(self) -> bool:
        """Wait (up to the socket's timeout) for end of file; False if bytes come instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # -- requests as bytes

    def ask(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """Send a request with header v1 (v2 when `flexible`); the response after the correlation id."""
        self.post(key, version, body, flexible=flexible)
        return self.answer()

    def post(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> int:
        """Send a request without waiting; returns its correlation id."""
        self.correlation += 1
        self.send_frame(header(key, version, self.correlation, flexible=flexible) + body)
        return self.correlation

    def answer(self) -> bytes:
        """The next response, after its correlation id."""
        frame = self.read_frame()
        return frame[4:]

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """{api key: (lowest, highest version)} from an ApiVersions v0."""
        reply = self.ask(18, 0, b"")
        error, count = struct.unpack_from(">hi", reply)
        assert error == 0, f"ApiVersions answered error {error}"
        rows = [struct.unpack_from(">hhh", reply, 6 + 6 * at) for at in range(count)]
        return {key: (low, high) for key, low, high in rows}

    # -- requests as kafka-python's objects

    def call(self, request: Any) -> Any:
        """Send a `kafka.protocol` request (`XRequest[3](…)` is version 3) and decode the response."""
        self.put(request)
        return self.take(request)

    def put(self, request: Any) -> None:
        """Send a `kafka.protocol` request without waiting."""
        self.correlation += 1
        request.with_header(correlation_id=self.correlation, client_id=CLIENT_ID)
        self.send_raw(bytes(request.encode(header=True, framed=True)))

    def metadata(self, *topics: str) -> Any:
        """The broker's metadata (version 7) of these topics, without creating them, or of all."""
        request = importlib.import_module("kafka.protocol.metadata").MetadataRequest
        asked = [request.MetadataRequestTopic(name=name) for name in topics] or None
        return self.call(request[7](topics=asked, allow_auto_topic_creation=False))

    def take(self, request: Any) -> Any:
        """Decode the next response as that to `request`."""
        return decode_response(request, self.read_frame())


def header(
    key: int, version: int, correlation: int, *, flexible: bool = False, client: str | None = CLIENT_ID
) -> bytes:  # fmt: skip
    """A request header v1, or v2 when `flexible`."""
    name = (client or "").encode()
    size = -1 if client is None else len(name)
    packed = struct.pack(f">hhih{len(name)}s", key, version, correlation, size, name)
    return packed + b"\0" if flexible else packed


def answers(bootstrap: str, seconds: float = 5) -> bool:
    """Whether a new client gets a response; false if its connection breaks, such as by the end of its acceptor."""
    try:
        with Wire(bootstrap, seconds) as wire:
            return bool(wire.api_versions())
    except (OSError, EOFError):
        return False


def informed(bootstraps: Iterable[str]) -> bool:
    """Whether each of these brokers reports a controller and this number of brokers in its metadata.

    A broker, ours or Apache's, without metadata from the controller responds that there is no broker. A librdkafka that
    receives this first keeps the connection, and asks no other broker while it looks for the controller.
    """
    bootstraps = list(bootstraps)
    return all(_informed(bootstrap, len(bootstraps)) for bootstrap in bootstraps)


def _informed(bootstrap: str, brokers: int) -> bool:
    request = importlib.import_module("kafka.protocol.metadata").MetadataRequest[1](topics=[])
    try:
        with Wire(bootstrap, 5) as wire:
            answer = wire.call(request)
    except (OSError, EOFError):
        return False
    return answer.controller_id >= 0 and len(answer.brokers) == brokers


def decode_response(request: Any, frame: bytes) -> Any:
    """The `kafka.protocol` response in `frame`, which must end exactly where the response ends."""
    registry = importlib.import_module("kafka.protocol.api_header").ResponseClassRegistry
    response_class = registry.get_response_class(request.header)
    assert response_class is not None, f"no response schema for {type(request).__name__}"
    version = request.API_VERSION
    head = io.BytesIO(frame)
    response_class.parse_header(head, version=version)
    return decode_body(response_class, version, frame[head.tell() :])


def decode_body(response_class: Any, version: int, body: bytes) -> Any:
    """The response in `body`, which must end exactly where the response ends."""
    flexible = response_class.flexible_version_q(version)
    decode = response_class._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response_class[None]
    )
    response, end = decode(memoryview(body), 0)
    left = len(body) - end
    assert left == 0, f"{left} bytes left after {response_class.name} v{version}"
    return response
