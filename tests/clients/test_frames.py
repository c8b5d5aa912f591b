"""Malformed frames: the broker closes their connection and serves the others."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from ..harness.wire import decode_response, header
from .admin import create_topic
from .raw.batches import batch, parse
from .raw.calls import fetch_request, produce, produce_request

pytestmark = pytest.mark.live

PRODUCE_BODY_CUT = struct.pack(">hhih1s", 0, 7, 1, 1, b"c") + b"\xff\xff\0\1\0\0\0\1\0\0\0\1\0\5to"
BAD = {
    "negative size": struct.pack(">i", -1),
    "size beyond socket.request.max.bytes": struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + b"x" * 200,
    "empty frame": struct.pack(">i", 0),
    "shorter than a header": struct.pack(">i", 3) + b"abc",
    "unknown api": struct.pack(">i", 11) + struct.pack(">hhih1s", 999, 0, 1, 1, b"c"),
    "negative api": struct.pack(">i", 11) + struct.pack(">hhih1s", -5, 0, 1, 1, b"c"),
    "unsupported version": struct.pack(">i", 11) + struct.pack(">hhih1s", 3, 99, 1, 1, b"c"),
    "negative version": struct.pack(">i", 11) + struct.pack(">hhih1s", 3, -1, 1, 1, b"c"),
    "client id longer than the frame": struct.pack(">i", 12) + struct.pack(">hhihh", 3, 1, 1, 999, 0),
    "body that ends early": struct.pack(">i", len(PRODUCE_BODY_CUT)) + PRODUCE_BODY_CUT,
    "array of two billion elements": struct.pack(">i", 15) + struct.pack(">hhih1si", 3, 1, 1, 1, b"c", 0x7FFFFFF0),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_frame_closes_only_its_connection(broker: Any, name: str) -> None:
    topic = create_topic(broker)
    bystanders = [broker.wire() for _ in range(4)]
    with broker.wire() as wire:
        wire.send_raw(BAD[name])
        assert wire.closed_by_peer()
    for at, bystander in enumerate(bystanders):
        assert produce(bystander, topic, batch([b"x"])).base_offset == at
        bystander.close()


def with_trailing_bytes(request: Any) -> bytes:
    """The frame of a request, with bytes after the last field."""
    request.with_header(correlation_id=0, client_id="tests")
    frame = bytes(request.encode(header=True)) + b"more"
    return struct.pack(">i", len(frame)) + frame


def test_trailing_bytes_of_a_request_are_ignored(broker: Any) -> None:
    """Repeated, since the broker does not decode a request that resembles the last one."""
    topic = create_topic(broker)
    with broker.wire() as wire:
        for at in range(3):
            for request in (produce_request(topic, batch([b"x"])), fetch_request(topic, 0)):
                wire.send_raw(with_trailing_bytes(request))
                answer = decode_response(request, wire.read_frame())
            assert len(parse(answer.responses[0].partitions[0].records)) == at + 1


def test_random_bytes_do_not_stop_the_broker(broker: Any) -> None:
    """Each of these connections is closed or waits for more bytes."""
    rng = random.Random(4)
    for _ in range(60):
        with broker.wire() as wire:
            wire.socket.settimeout(0.05)  # set after connecting, which takes longer if the backlog is full
            size = rng.randrange(1, 200)
            wire.send_raw(struct.pack(">i", size) + rng.randbytes(size))
            try:
                wire.closed_by_peer()
            except TimeoutError:
                pass
    with broker.wire() as wire:
        assert wire.api_versions()


def test_requests_with_a_changed_byte_do_not_stop_the_broker(broker: Any) -> None:
    """The broker still answers good requests afterwards."""
    topic = create_topic(broker)
    request = produce_request(topic, batch([b"x" * 50]), version=9)
    request.with_header(correlation_id=1, client_id="mangled")
    good = bytes(request.encode(header=True, framed=True))
    rng = random.Random(5)
    for _ in range(80):
        bad = bytearray(good)
        bad[rng.randrange(4, len(bad))] = rng.randrange(256)
        with broker.wire() as wire:
            wire.socket.settimeout(0.05)  # set after connecting, which takes longer if the backlog is full
            wire.send_raw(bytes(bad))
            try:
                wire.closed_by_peer()
            except TimeoutError:
                pass
    with broker.wire() as wire:
        assert produce(wire, topic, batch([b"x"])).error_code == 0


def test_api_versions_of_an_unknown_version_is_answered_as_v0(broker: Any) -> None:
    """KIP-511: error 35 and the row of ApiVersions itself (or all), so that a newer client can step down."""
    with broker.wire() as wire:
        reply = wire.ask(18, 99, b"\0\0\0", flexible=True)
        error, count = struct.unpack_from(">hi", reply)
        assert error == 35
        rows = [struct.unpack_from(">hhh", reply, 6 + 6 * at) for at in range(count)]
        assert 18 in {row[0] for row in rows}
        assert wire.api_versions(), "the connection stays open"


def test_a_null_client_id_is_accepted(broker: Any) -> None:
    with broker.wire() as wire:
        wire.send_frame(struct.pack(">hhih", 18, 0, 77, -1))
        assert wire.read_frame()[:6] == struct.pack(">ih", 77, 0)


def test_connection_closed_within_a_request_does_not_stop_the_broker(broker: Any) -> None:
    for cut in (1, 3, 4, 9, 20):
        with broker.wire() as wire:
            wire.send_raw((struct.pack(">i", 100) + header(0, 7, 1))[:cut])
    with broker.wire() as wire:
        assert wire.api_versions()
