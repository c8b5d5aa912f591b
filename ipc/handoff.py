"""The messages between acceptor and workers on `acceptor.sock`, which hand over clients' connections.

Layout    : one kind byte, then UTF-8 fields separated by NUL.
              R id                    worker → acceptor   register: I take connections from now on
              H listener host port    acceptor → worker   a connection of this client; its descriptor travels along
              B listener host port    worker → acceptor   a connection back, for another worker; descriptor along
              O listener host         worker → acceptor   I had a connection of this client before I registered
              C listener host         worker → acceptor   a connection of this client is closed
              D                       worker → acceptor   I drain: give me no more
              E                       acceptor → worker   answer to D, after the last H: nothing more will come
Owner     : the acceptor binds the socket once it holds its role byte.
Writers   : both ends, each its own kinds.
Lock      : none.
Crash rule: EOF means that the other side is dead. A worker keeps its connections and registers with the next
            acceptor: R, then an O for each connection it has. A dead worker's connections die with it, and the
            acceptor drops their counts.
A worker may hand a connection back only at a boundary: it has not read any byte of an unanswered request.
"""

from __future__ import annotations

from typing import NamedTuple

REGISTER, HANDOFF, BACK, OPENED, CLOSED, DRAIN, END = b"R", b"H", b"B", b"O", b"C", b"D", b"E"


class Client(NamedTuple):
    """A client's connection as the acceptor knows it."""

    listener: str
    host: str
    port: int


def register(worker_id: int) -> bytes:
    """The first message of a worker."""
    return REGISTER + str(worker_id).encode()


def registered(message: bytes) -> int:
    """The worker id of a REGISTER message."""
    return int(message[1:])


def handoff(client: Client) -> bytes:
    """A connection for a worker; send it with the descriptor."""
    return HANDOFF + _client(client)


def back(client: Client) -> bytes:
    """A connection for another worker; send it with the descriptor."""
    return BACK + _client(client)


def _client(client: Client) -> bytes:
    return f"{client.listener}\0{client.host}\0{client.port}".encode()


def client(message: bytes) -> Client:
    """The client of a HANDOFF or BACK message."""
    listener, host, port = message[1:].decode().split("\0")
    return Client(listener, host, int(port))


def opened(listener: str, host: str) -> bytes:
    """A host's connection that is older than this registration."""
    return OPENED + f"{listener}\0{host}".encode()


def closed(listener: str, host: str) -> bytes:
    """A closed connection of a host."""
    return CLOSED + f"{listener}\0{host}".encode()


def listener_and_host(message: bytes) -> tuple[str, str]:
    """(listener, host) of an OPENED or CLOSED message."""
    listener, host = message[1:].decode().split("\0")
    return listener, host
