"""Sends many cases to a broker over several connections, many frames each; a new connection sends the frames left.

Answers arrive in the order of requests, so their number shows the frame at which a connection was closed. A request
that waits too long (a long poll, a rebalance) is given up.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence

LANES = 12
CHUNK = 20  # frames sent at once
PATIENCE_S = 0.3  # without an answer, the next request counts as delayed
CLOSE_S = 60.0  # for a connection that the broker must close


class Lane:
    """One connection and its unanswered frames."""

    def __init__(self, address: tuple[str, int], frames: list[bytes]) -> None:
        self._address = address
        self.frames = frames
        self.connections = 0
        self._open()

    def _open(self) -> None:
        self.sock = socket.create_connection(self._address, 10)
        self.sock.setblocking(False)
        self.unsent = memoryview(b"".join(self.frames))
        self.buffer = bytearray()
        self.answered = 0
        self.heard = time.monotonic()
        self.connections += 1

    def ready(self) -> bool:
        """Send and receive without blocking; whether this lane is done."""
        try:
            self._send()
            ended = self._receive()
        except ConnectionError:
            ended = True
        if self.answered >= len(self.frames):
            return self._done()
        if ended or time.monotonic() - self.heard > PATIENCE_S:
            return self._again()
        return False

    def _send(self) -> None:
        while self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except BlockingIOError:
                return

    def _receive(self) -> bool:
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return False
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = struct.unpack_from(">i", self.buffer)
            assert 4 <= size < 1 << 27, f"an answer of {size} bytes"
            if len(self.buffer) < 4 + size:
                break
            del self.buffer[: 4 + size]
            self.answered += 1
            self.heard = time.monotonic()
        return not data

    def _again(self) -> bool:
        """Skip the unanswered frame, and continue with the frames after it on another connection."""
        self.sock.close()
        self.frames = self.frames[self.answered + 1 :]
        if not self.frames:
            return True
        self._open()
        return False

    def _done(self) -> bool:
        self.sock.close()
        return True


def shoot(address: tuple[str, int], frames: Sequence[bytes]) -> int:
    """Send all of `frames`, each a whole request; returns the number of connections used."""
    waiting = [list(frames[at : at + CHUNK]) for at in range(0, len(frames), CHUNK)]
    lanes: dict[socket.socket, Lane] = {}
    connections = 0
    with selectors.DefaultSelector() as selector:
        while waiting or lanes:
            while waiting and len(lanes) < LANES:
                _enter(Lane(address, waiting.pop()), lanes, selector)
            selector.select(0.02)
            for sock, lane in list(lanes.items()):
                done = lane.ready()
                if done or lane.sock is not sock:
                    selector.unregister(sock)
                    del lanes[sock]
                    if done:
                        connections += lane.connections
                    else:
                        _enter(lane, lanes, selector)
    return connections


def _enter(lane: Lane, lanes: dict[socket.socket, Lane], selector: selectors.BaseSelector) -> None:
    lanes[lane.sock] = lane
    selector.register(lane.sock, selectors.EVENT_READ)


def shoot_alone(address: tuple[str, int], cases: Sequence[bytes]) -> None:
    """Send each case on its own connection and close our side; the broker must close its side, too."""
    for at in range(0, len(cases), LANES):
        socks = [socket.create_connection(address, 10) for _ in cases[at : at + LANES]]
        for sock, case in zip(socks, cases[at:], strict=False):
            sock.settimeout(CLOSE_S)
            try:
                sock.sendall(case)
                sock.shutdown(socket.SHUT_WR)
            except OSError:  # also if the connection is already closed
                pass  # the broker closed it first
        for sock in socks:
            _drain(sock)


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    finally:
        sock.close()
