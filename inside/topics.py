"""Creates, deletes and lists topics over the wire: three requests, so that a test loads no client for them.

Layout of the messages: Kafka's CreateTopicsRequest.json, DeleteTopicsRequest.json, MetadataRequest.json and
MetadataResponse.json, versions without tagged fields.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from odradek.broker.errors import OdradekError
from odradek.protocol.errors import Error
from odradek.protocol.wire import I16, I32, pack_count, pack_string, string

_CREATE_TOPICS, _CREATE_VERSION = 19, 4
_DELETE_TOPICS, _DELETE_VERSION = 20, 3
_METADATA, _METADATA_VERSION = 3, 1
_CLIENT = b"odradek"
_TIMEOUT_MS = 30_000
_SOCKET_S = 40.0


class TopicError(OdradekError):
    """The broker refuses to create or delete a topic; `code` is Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


def create(bootstrap: str, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
    """Create a topic; -1 partitions or replicas are the broker's default. Raises TopicError, or OSError."""
    settings = [pack_string(key.encode(), False) + pack_string(value.encode(), False) for key, value in configs.items()]
    topic = b"".join([
        pack_string(name.encode(), False), I32.pack(partitions), I16.pack(replication_factor), pack_count(0, False),
        pack_count(len(settings), False), *settings,
    ])  # fmt: skip
    body = pack_count(1, False) + topic + I32.pack(_TIMEOUT_MS) + b"\0"
    answer = _ask(bootstrap, _CREATE_TOPICS, _CREATE_VERSION, body)
    code, at = _code(answer)
    message, _ = string(answer, at, len(answer), False)
    _check(code, f"cannot create topic {name}", (message or b"").decode())


def delete(bootstrap: str, name: str) -> None:
    """Delete a topic. Raises TopicError, or OSError."""
    body = pack_count(1, False) + pack_string(name.encode(), False) + I32.pack(_TIMEOUT_MS)
    code, _ = _code(_ask(bootstrap, _DELETE_TOPICS, _DELETE_VERSION, body))
    _check(code, f"cannot delete topic {name}")


def names(bootstrap: str) -> list[str]:
    """The names of all topics. OSError when the broker cannot be reached."""
    answer = _ask(bootstrap, _METADATA, _METADATA_VERSION, I32.pack(-1))
    at, end = 0, len(answer)
    (brokers,), at = I32.unpack_from(answer, at), at + I32.size
    for _ in range(brokers):
        _, at = string(answer, at + I32.size, end, False)  # host
        _, at = string(answer, at + I32.size, end, False)  # rack
    (topics,), at = I32.unpack_from(answer, at + I32.size), at + 2 * I32.size  # after the controller's id
    found = []
    for _ in range(topics):
        name, at = string(answer, at + I16.size, end, False)
        found.append((name or b"").decode())
        at = _after_partitions(answer, at + 1)
    return found


def _after_partitions(answer: memoryview, at: int) -> int:
    """The position behind the partitions of a topic: error, index, leader and two lists of brokers each."""
    (count,), at = I32.unpack_from(answer, at), at + I32.size
    for _ in range(count):
        at += I16.size + 2 * I32.size
        for _ in range(2):
            at += I32.size * (1 + I32.unpack_from(answer, at)[0])
    return at


def _code(answer: memoryview) -> tuple[int, int]:
    """The error code of the one topic in an answer, and where the answer goes on."""
    at = 2 * I32.size  # the time of throttling, the number of topics
    _, at = string(answer, at, len(answer), False)
    return I16.unpack_from(answer, at)[0], at + I16.size


def _check(code: int, what: str, message: str = "") -> None:
    if code:
        name = Error(code).name if code in set(Error) else str(code)
        raise TopicError(code, f"{what}: {name}{f': {message}' if message else ''}")


def _ask(bootstrap: str, key: int, version: int, body: bytes) -> memoryview:
    """The answer to one request on a connection of its own, without its header."""
    header = I16.pack(key) + I16.pack(version) + I32.pack(0) + pack_string(_CLIENT, False)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), _SOCKET_S) as sock:
        sock.sendall(I32.pack(len(header) + len(body)) + header + body)
        with sock.makefile("rb") as stream:
            (size,) = I32.unpack(stream.read(I32.size).ljust(I32.size, b"\0"))
            answer = stream.read(size)
    if size <= I32.size or len(answer) < size:
        raise ConnectionError(f"the broker at {bootstrap} closed the connection")
    return memoryview(answer)[I32.size :]  # after the correlation id
