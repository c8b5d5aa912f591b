"""The client id of a connection: that of its last request, as Kafka takes it from each request's header.

Quotas, members of groups and the numbers of the controller's requests depend on it. Nearly all clients send the same id
in each request, so a request whose bytes equal those of the last id costs one comparison, and nothing is decoded. A
null id is an empty one, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.workers.net.connection import Connection


def is_same(connection: Connection, view: memoryview, at: int) -> bool:
    """Whether the client id that begins at `at` is that of the connection's last request."""
    known, data = connection.client_head, view.obj
    found: bool = data.find(known, at, at + len(known)) == at  # type: ignore[attr-defined]  # a memoryview has no find()
    return found


def read(connection: Connection, view: memoryview, at: int, end: int) -> int:
    """Set the connection's client id to that of a request; returns the position behind it. Raises ValueError."""
    behind: int = at + len(connection.client_head)
    if behind <= end and is_same(connection, view, at):
        return behind
    length = int.from_bytes(view[at : at + 2], "big", signed=True)
    behind = at + 2 + max(0, length)
    if behind > end:
        raise ValueError("client id runs past its frame")
    _change(connection, bytes(view[at:behind]))
    return behind


def _change(connection: Connection, head: bytes) -> None:
    """The repeated request has the former id, and is compared before the id is read."""
    connection.client_head, connection.repeated = head, None
    connection.client_id = head[2:].decode("utf-8", "replace") or None
