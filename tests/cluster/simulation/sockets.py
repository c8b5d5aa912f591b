"""The socket module as brokers' loops use it, over simulated connections: whole frames, level and edge alike."""

from __future__ import annotations

import errno
import select
import socket
from typing import Any

from .network import Connection, End, Network
from .world import Process

_PREFIX = "broker-"
_NEVER_READY = 99


class Sockets:
    """Stands in for the module."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._number = 100

    def __getattr__(self, name: str) -> Any:
        """The module's constants."""
        if not name.isupper():
            raise AttributeError(name)
        return getattr(socket, name)

    def socket(self, family: int, kind: int) -> Socket:
        """A socket of the running process."""
        self._number += 1
        process = self._network.world.running[-1]
        return Socket(self._network, process, self._number, "fetch" if process.name == "replicator" else "peer")


class Resolver:
    """broker.interbroker.resolver: it resolves at once."""

    def fileno(self) -> int:
        return _NEVER_READY

    def resolve(self, host: str, port: int) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def close(self) -> None:
        pass


class Socket:
    """A client's end."""

    def __init__(self, network: Network, process: Process, number: int, kind: str) -> None:
        self._network = network
        self._process = process
        self._number = number
        self._kind = kind
        self._error = 0
        self._connection: Connection | None = None
        self._in = bytearray()
        self._ended = self._closed = False

    def fileno(self) -> int:
        return self._number

    def setsockopt(self, *_: int) -> None:
        pass

    def getsockopt(self, *_: int) -> int:
        return self._error

    def connect_ex(self, address: tuple[str, int]) -> int:
        end = End(self._process, self._take, self._lost)
        server = int(address[0].removeprefix(_PREFIX))
        self._connection = self._network.connect(self._process.broker, server, self._kind, end, self._connected)
        return errno.EINPROGRESS

    def send(self, data: Any) -> int:
        if self._ended or self._connection is None:
            raise BrokenPipeError(errno.EPIPE, "the connection is lost")
        self._connection.send(True, bytes(data))
        return len(data)

    def recv_into(self, room: Any) -> int:
        if not self._in and not self._ended:
            raise BlockingIOError
        count = min(len(room), len(self._in))
        room[:count], self._in = self._in[:count], self._in[count:]
        return count

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    # -- what happens to it

    def _connected(self, accepted: bool) -> None:
        self._error = 0 if accepted else errno.ECONNREFUSED
        self._ready(select.EPOLLOUT)

    def _take(self, data: bytes) -> None:
        self._in += data
        self._ready(select.EPOLLIN)

    def _lost(self) -> None:
        self._ended = True
        self._ready(select.EPOLLIN | select.EPOLLHUP)

    def _ready(self, events: int) -> None:
        if not self._closed:
            self._process.ready(self._number, events)
