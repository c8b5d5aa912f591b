"""Channels and doorbells between processes."""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import channel, forward, handoff
from odradek.ipc.channel import FRAGMENT, Channel, Listener
from odradek.ipc.doorbell import Doorbell, Ringer
from odradek.ipc.forward import Forwarded

from ..harness.process import readable


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Channel, Channel]]:
    listener = Listener(tmp_path / "s")
    one = channel.connect(tmp_path / "s")
    other = listener.accept()
    assert other is not None
    yield one, other
    one.close()
    other.close()
    listener.close()


def _receive(end: Channel, sender: Channel, count: int) -> list[bytes]:
    got: list[bytes] = []
    until = time.monotonic() + 20
    while len(got) < count and time.monotonic() < until:
        sender.flush()
        readable(end, 0.05)
        got += end.receive()
    return got


@pytest.mark.parametrize("size", [0, 1, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 3 * FRAGMENT, 5_000_000])
def test_messages_of_any_size_arrive_whole(pair: tuple[Channel, Channel], size: int) -> None:
    data = os.urandom(size)
    pair[0].send(data)
    pair[0].send(b"next")
    assert _receive(pair[1], pair[0], 2) == [data, b"next"]


class OutOfDescriptors(Channel):
    """A channel whose process has no free descriptor for the first packet; then another thread closes a file."""

    exhausted = True

    def _receive_packet(self) -> bytes:
        limits, free = resource.getrlimit(resource.RLIMIT_NOFILE), os.dup(self.fileno())
        os.close(free)
        if self.exhausted:
            self.exhausted = False
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            return super()._receive_packet()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_lost_descriptor_is_not_replaced_by_that_of_the_next_message() -> None:
    """A worker would take it for the connection of another client or another listener."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender, end = Channel(ours), OutOfDescriptors(theirs)
    pipes = [os.pipe() for _ in range(3)]
    try:
        for number, (read, _) in enumerate(pipes):
            sender.send(b"%d" % number, [read])
        assert end.receive() == [b"0", b"1", b"2"]
        lost, *came = end.take_fds()
        assert lost == channel.LOST
        assert [os.fstat(fd).st_ino for fd in came] == [os.fstat(read).st_ino for read, _ in pipes[1:]]
        for fd in came:
            os.close(fd)
        sender.send(b"3", [pipes[0][0]])
        end.receive()
    finally:
        for fd in [fd for pipe in pipes for fd in pipe]:
            os.close(fd)
        sender.close()
        end.close()


def test_sending_never_blocks(pair: tuple[Channel, Channel]) -> None:
    for number in range(2000):
        pair[0].send(bytes(8000) + number.to_bytes(4, "big"))
    assert pair[0].wants_write
    numbers = [int.from_bytes(message[-4:], "big") for message in _receive(pair[1], pair[0], 2000)]
    assert numbers == list(range(2000))
    assert not pair[0].wants_write


def test_descriptors_are_passed(pair: tuple[Channel, Channel]) -> None:
    read, write = os.pipe()
    pair[0].send(b"take", [write])
    assert _receive(pair[1], pair[0], 1) == [b"take"]
    (taken,) = pair[1].take_fds()
    os.close(write)
    os.write(taken, b"x")
    assert os.read(read, 1) == b"x"
    assert not os.get_inheritable(taken)
    os.close(taken)
    os.close(read)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS])
def test_message_is_sent_later_after_a_temporary_error(
    pair: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "_send_packet", _failing(number))
        pair[0].send(b"one")
        assert pair[0].wants_write
    assert _receive(pair[1], pair[0], 1) == [b"one"]


def test_permanent_send_error_closes_both_ends(pair: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the sender would wait for its answer for ever."""
    pair[1].send(b"sent before")
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "_send_packet", _failing(errno.EBADF))
        pair[0].send(b"lost")
    assert _receive(pair[0], pair[1], 1) == [b"sent before"]
    for end in pair:
        with pytest.raises(EOFError):
            end.receive()


def _failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_last_messages_of_a_process_that_ends_without_reading_are_not_lost(pair: tuple[Channel, Channel]) -> None:
    """The kernel then reports ECONNRESET before them."""
    ours, theirs = pair
    ours.send(b"unread")
    theirs.send(b"a", [0])
    theirs.send(b"b")
    theirs.close()
    assert ours.receive() == [b"a", b"b"]
    (fd,) = ours.take_fds()
    os.close(fd)
    with pytest.raises(EOFError):
        ours.receive()


def test_messages_are_not_lost_when_a_send_finds_the_other_process_gone(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    theirs.send(b"a")
    theirs.close()
    ours.send(b"too late")
    assert ours.receive() == [b"a"]


def test_closed_channel_gives_eof_after_its_last_message(pair: tuple[Channel, Channel]) -> None:
    pair[0].send(b"last words")
    pair[0].close()
    assert pair[1].receive() == [b"last words"]
    with pytest.raises(EOFError):
        pair[1].receive()
    pair[1].send(b"to nobody")


_NAMES = st.none() | st.text(max_size=20)


@given(st.integers(0, (1 << 64) - 1), st.integers(-128, 127), st.integers(0, 30), _NAMES, st.text(), st.binary())
def test_forwarded_request_round_trip(
    token: int, key: int, version: int, client: str | None, host: str, body: bytes
) -> None:
    request = Forwarded(token, key, version, client, host, "PLAINTEXT", body)
    assert forward.decode(forward.encode(request)) == request


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 255), st.binary())
def test_forwarded_reply_round_trip(token: int, flags: int, body: bytes) -> None:
    assert forward.decode_reply(forward.encode_reply(token, body, flags)) == (token, flags, body)


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
def test_forwarded_end_round_trip(begun: list[int]) -> None:
    token, flags, body = forward.decode_reply(forward.encode_end(begun))
    assert (token, flags, list(forward.decode_end(body))) == (0, forward.ENDS, begun)


def test_handoff_messages_round_trip() -> None:
    client = handoff.Client("EXTERNAL", "::1", 65535)
    assert handoff.client(handoff.handoff(client)) == client
    assert handoff.client(handoff.back(client)) == client
    assert handoff.registered(handoff.register(63)) == 63


@given(st.integers(1, 20))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_doorbell_is_readable_until_drained(tmp_path: Path, times: int) -> None:
    bell, ringer = Doorbell(tmp_path, 8), Ringer(tmp_path)
    for _ in range(times):
        ringer.ring(8)
    assert readable(bell, 5)
    bell.drain()
    assert not readable(bell, 0)
    bell.close()
    ringer.close()


def test_ringing_an_absent_doorbell_does_nothing(tmp_path: Path) -> None:
    ringer = Ringer(tmp_path)
    ringer.ring(8)
    Doorbell(tmp_path, 8).close()
    ringer.ring(8)


def test_undrained_doorbell_does_not_block_the_ringer(tmp_path: Path) -> None:
    bell, ringer = Doorbell(tmp_path, 8), Ringer(tmp_path)
    for _ in range(10_000):
        ringer.ring(8)
    bell.close()
