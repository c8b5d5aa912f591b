"""Fetch (key 1), versions 0 to 18: read records from partitions.

Answers are slices of segment files (storage.read), sent with sendfile, or a few records as bytes; long polls wait in
workers.parking; sessions (KIP-227) live in workers.sessions. Only records below the high watermark are given, below
the last stable offset with isolation level read_committed. From version 3 on the first batch is given even when it is
larger than the limits (KIP-74). Below version 4 records are converted down to magic 1, below 2 to magic 0.

A consumer of one partition sends the same bytes again and again, but for the offset. So its connection remembers them
with what they mean (workers.standing), and the worker asks that first; what it does not know comes here.

Left out: DivergingEpoch for consumers that send a last fetched epoch (only followers do, and replication is not there
yet), preferred read replicas (KIP-392), tiered storage.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from odradek.protocol import fetch
from odradek.workers import standing
from odradek.workers.api import Api
from odradek.workers.fetching import Fetch

if TYPE_CHECKING:
    from odradek.workers.connection import Connection
    from odradek.workers.worker import Worker


def raw(
    worker: Worker, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int, start: int,
    end: int,
) -> None:  # fmt: skip
    """Take the request whose client id begins at `head` and whose body is buffer[start:end]."""
    request = fetch.parse(buffer, start, end, version)
    connection.standing = standing.remember(worker, connection, version, request, buffer, head, start, end)
    error, session = worker.sessions.open(request, version >= fetch.TOPIC_IDS, time.monotonic())
    connection.waiting = True
    if error:
        worker.answer_pieces(connection, fetch.response(version, correlation, [], error, 0))
        return
    Fetch(worker, connection, version, correlation, request, session).start()


def handle(*_: Any) -> None:
    """Never called: Fetch is served by `raw`."""
    raise AssertionError("Fetch is raw")


API = Api(key=1, name="Fetch", versions=fetch.VERSIONS, handle=handle, raw=raw, flexible=fetch.FLEXIBLE)
