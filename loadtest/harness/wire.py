"""The few requests of the bench itself: list partitions, create a topic, delete it, find its end.

Old versions of Kafka's protocol that every broker here still supports, encoded by hand: no client library starts, so a
request costs next to nothing and can be repeated every few milliseconds while a broker starts.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_TIMEOUT_MS = 30_000
_LIST_OFFSETS, _METADATA, _CREATE_TOPICS, _DELETE_TOPICS, _ALTER_CONFIGS = 2, 3, 19, 20, 44
_TOPIC, _SET = 2, 0
_NOT_CONTROLLER = 41
WAIT_SECONDS = 120


class WireError(Exception):
    """The broker's response is not the expected one."""


class Found(NamedTuple):
    """A Metadata response: partitions with a leader, and those without (or with an error)."""

    led: int
    other: int


def ask(port: int, api: int, version: int, body: bytes, seconds: float = 30) -> bytes:
    """Send one request on a separate connection; returns the response after its correlation id. OSError without one."""
    frame = struct.pack(">hhih", api, version, 1, -1) + body
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        stream = connection.makefile("rb")
        head = stream.read(4)
        answer = stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    if len(answer) < 4:
        raise ConnectionResetError("the broker closed the connection")
    return answer[4:]


def text(word: str) -> bytes:
    """A STRING of Kafka's protocol."""
    return struct.pack(">h", len(word.encode())) + word.encode()


def metadata(port: int, topic: str | None = None, seconds: float = 30) -> Found:
    """Metadata v4 of all topics, or of `topic`, which the request creates where it is missing."""
    topics = struct.pack(">i", -1) if topic is None else struct.pack(">i", 1) + text(topic)
    return _partitions(ask(port, _METADATA, 4, topics + bytes([topic is not None]), seconds))


class _Reader:
    """Reads fields from the front of a response."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._at = answer, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._answer, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def skip(self, *fields: str) -> None:
        """Skip fields: `text`, `ids` (an array of int32), or a form of struct."""
        for one in fields:
            count = {"text": "h", "ids": "i"}.get(one, one)
            length = max(self.take(count), 0)
            self._at += {"text": length, "ids": 4 * length}.get(one, 0)


def _partitions(answer: bytes) -> Found:
    """Count the partitions in a Metadata v4 response; one with a leader and no error is led."""
    reader = _Reader(answer)
    reader.take("i")
    for _ in range(reader.take("i")):
        reader.skip("i", "text", "i", "text")
    reader.skip("text", "i")
    led = other = 0
    for _ in range(reader.take("i")):
        failed = reader.take("h")
        reader.skip("text", "b")
        other += failed != 0
        for _ in range(reader.take("i")):
            error, _, leader = reader.take("h"), reader.take("i"), reader.take("i")
            reader.skip("ids", "ids")
            good = not error and leader >= 0
            led, other = led + good, other + (not good)
    return Found(led, other)


def create(port: int, topic: str, partitions: int = 1) -> None:
    """Create `topic` automatically, and wait until the leaders of all its `partitions` return their end offsets.

    Apache Kafka names the leader in Metadata before that broker knows of it.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := metadata(port, topic)) != (partitions, 0) or _ends(port, topic, partitions) is None:
        if time.monotonic() > deadline:
            raise WireError(f"topic {topic} has {found} partitions after {WAIT_SECONDS} s, not {partitions}")
        time.sleep(0.05)


def delete(port: int, topic: str) -> None:
    """Delete `topic` (DeleteTopics v1)."""
    answer = ask(port, _DELETE_TOPICS, 1, struct.pack(">i", 1) + text(topic) + struct.pack(">i", _TIMEOUT_MS))
    (error,) = struct.unpack(">h", answer[-2:])
    if error:
        raise WireError(f"DeleteTopics of {topic}: error {error}")


def configure(port: int, topic: str, configs: Mapping[str, object]) -> None:
    """Set topic configs (IncrementalAlterConfigs v0)."""
    pairs = b"".join(text(name) + bytes([_SET]) + text(str(value)) for name, value in configs.items())
    body = struct.pack(">ib", 1, _TOPIC) + text(topic) + struct.pack(">i", len(configs)) + pairs + b"\0"
    (error,) = struct.unpack_from(">h", ask(port, _ALTER_CONFIGS, 0, body), 8)
    if error:
        raise WireError(f"IncrementalAlterConfigs of {topic}: error {error}")


def end(port: int, topic: str) -> int:
    """The end offset of partition 0."""
    ends = _ends(port, topic, 1)
    if ends is None:
        raise WireError(f"ListOffsets of {topic} returned an error")
    return ends[0]


def _ends(port: int, topic: str, partitions: int) -> list[int] | None:
    """The end offsets of all `partitions` (ListOffsets v1); None while one of them is an error."""
    asked = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    head = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">i", partitions)
    answer = ask(port, _LIST_OFFSETS, 1, head + asked)
    rows = list(struct.iter_unpack(">ihqq", answer[8 + len(text(topic)) :]))
    return None if any(row[1] for row in rows) else [row[3] for row in sorted(rows)]


# -- clusters


def brokers(port: int) -> int:
    """The number of brokers in Metadata v4; 0 when there is no response."""
    try:
        answer = ask(port, _METADATA, 4, struct.pack(">i", 0) + b"\x00", 10)
    except OSError:
        return 0
    return int(struct.unpack_from(">i", answer, 4)[0])


def create_assigned(ports: list[int], topic: str, replicas: list[list[int]]) -> None:
    """Create a topic with the replicas of each partition; returns when the first broker leads all of them.

    CreateTopics v1, sent to the broker that is the controller.
    """
    assigned = b"".join(struct.pack(f">ii{len(some)}i", index, len(some), *some) for index, some in enumerate(replicas))
    head = struct.pack(">i", 1) + text(topic) + struct.pack(">ih", -1, -1)
    body = head + struct.pack(">i", len(replicas)) + assigned + struct.pack(">iib", 0, _TIMEOUT_MS, 0)
    _of_controller(ports, _CREATE_TOPICS, 1, body, lambda answer: _create_error(answer, topic))
    deadline = time.monotonic() + WAIT_SECONDS
    while _ends(ports[0], topic, len(replicas)) is None:
        if time.monotonic() > deadline:
            raise WireError(f"topic {topic} is not led by the first broker after {WAIT_SECONDS} s")
        time.sleep(0.05)


def _create_error(answer: bytes, topic: str) -> int:
    return int(struct.unpack_from(">h", answer, 4 + len(text(topic)))[0])


def delete_anywhere(ports: list[int], topic: str) -> None:
    """Delete `topic` (DeleteTopics v1), on the broker that is the controller."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">i", _TIMEOUT_MS)
    _of_controller(ports, _DELETE_TOPICS, 1, body, lambda answer: int(struct.unpack(">h", answer[-2:])[0]))


def controller(port: int) -> int:
    """The controller's id in Metadata v4."""
    reader = _Reader(ask(port, _METADATA, 4, struct.pack(">i", 0) + b"\x00", 10))
    reader.take("i")
    for _ in range(reader.take("i")):
        reader.skip("i", "text", "i", "text")
    reader.skip("text")
    return reader.take("i")


def create_somewhere(ports: list[int], topic: str, replicas: int) -> bool:
    """Try to create a topic of one partition on the broker that is the controller; returns whether that worked."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", 1, replicas, 0, 0) + struct.pack(">ib", 5000, 0)
    try:
        _of_controller(ports, _CREATE_TOPICS, 1, body, lambda answer: _create_error(answer, topic))
    except (OSError, WireError):
        return False
    return True


def _of_controller(ports: list[int], api: int, version: int, body: bytes, error_of: Callable[[bytes], int]) -> None:
    for port in ports:
        error = error_of(ask(port, api, version, body))
        if error != _NOT_CONTROLLER:
            break
    if error:
        raise WireError(f"API {api}: error {error}")
