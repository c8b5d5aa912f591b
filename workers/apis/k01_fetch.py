"""Fetch (key 1), versions 0 to 18: read records from partitions.

Answers are slices of segment files (storage.log.read), sent from the page cache, or a few records as bytes; long polls
wait in workers.dispatch.purgatory; sessions (KIP-227) live in workers.fetch.fetch_sessions. Consumers get only records
below the high watermark, with isolation level read_committed below the last stable offset. From version 3 on the first
batch is sent even when it is larger than the limits (KIP-74). Below version 4 records are converted down to magic 1,
below 2 to magic 0.

Consumers may have a quota (workers.quotas.request_quotas); one that exceeds it gets an answer without records.

A consumer of one partition repeats the same bytes, except for the offset. So its connection remembers them decoded
(workers.fetch.repeated_fetch), and the worker tries that first; other requests come here.

Followers, identified by a replica id, read up to the log end (workers.fetch.follower_fetch). Such an id from an address
of no broker (workers.dispatch.unregistered_brokers), or without ClusterAction, gets TOPIC_AUTHORIZATION_FAILED.
From version 11 on a follower serves consumers too, up to the high watermark that it knows, and a leader may redirect
them to it (KIP-392, workers.fetch.nearest_replica). From version 12 on a client that sends its last fetched epoch
learns where its log diverges from this one.

Left out: tiered storage.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from odradek.protocol import errors, fetch, fetch_single
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import CLUSTER, CLUSTER_ACTION, READ, TOPIC
from odradek.workers.fetch.fetch_sessions import INITIAL, SESSIONLESS
from odradek.workers.fetch.fetch_targets import FetchTarget
from odradek.workers.fetch.fetching import Fetch, failed
from odradek.workers.fetch.follower_fetch import FollowerFetch
from odradek.workers.fetch.repeated_fetch import RepeatedFetch
from odradek.workers.fetch.repeated_follower_fetch import FollowerTarget, RepeatedFollowerFetch
from odradek.workers.fetch.repeated_session_fetch import RepeatedSessionFetch

if TYPE_CHECKING:
    from odradek.protocol.fetch import FetchRequest
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.fetch.fetch_sessions import FetchSession
    from odradek.workers.net.connection import Connection

_MANY = 1000  # partitions above which a request is read in steps
_LONGEST = 1024  # bytes of the longest request that is remembered; names may be 32 KiB long each


def take(
    services: FetchServices, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int,
    start: int, end: int,
) -> None:  # fmt: skip
    """Take the request whose client id begins at `head` and whose body is buffer[start:end]."""
    request = fetch.parse(buffer, start, end, version)
    if request.replica >= 0 and _is_no_follower(services, connection, request.replica):
        _refuse(services, connection, version, correlation, request)
        return
    error, session = services.sessions.open(request, version >= fetch.TOPIC_IDS, time.monotonic())
    connection.repeated = None
    if error:
        services.sender.answer_pieces(connection, fetch.response(version, correlation, [], error, 0))
        return
    if services.quotas is not None and request.replica < 0:
        request = _bounded(services.quotas.most_fetched(connection), request)
    made = FollowerFetch if request.replica >= 0 else Fetch
    operation = made(services, connection, version, correlation, request, session)
    if len(request.parts) == 1 and not request.forgotten and end - head <= _LONGEST:
        connection.repeated = _remembered(services, connection, version, request, session, buffer, head, start, end)
    if len(operation.parts) > _MANY and request.replica < 0:
        operation.begin()
    else:
        operation.start()


def _bounded(most: float | None, request: FetchRequest) -> FetchRequest:
    """The request for no more bytes than the client's quota allows in a window, as in Kafka: no answer would pass."""
    if most is None or most >= request.max_bytes:
        return request
    return request._replace(max_bytes=int(most), min_bytes=min(request.min_bytes, int(most)))


def _is_no_follower(services: FetchServices, connection: Connection, replica: int) -> bool:
    """Whether a client that says it is a follower is not known as a broker, or lacks ClusterAction."""
    authorization, principal = services.authorization, str(connection.principal)
    known = authorization.knows(principal)
    if not known and services.unregistered.refuses(replica, connection.listener, connection.host):
        return True
    return not authorization.of(principal, connection.host).allows(1, CLUSTER_ACTION, CLUSTER)


def _refuse(
    services: FetchServices, connection: Connection, version: int, correlation: int, request: FetchRequest
) -> None:  # fmt: skip
    """Refuse a request with a replica id from an address of no broker: it reads nothing and counts as no follower.

    If it names no partition of its session, the client must open a new one with all of them, and gets an error of each.
    """
    connection.repeated = None
    results = [failed(part, errors.TOPIC_AUTHORIZATION_FAILED) for part in request.parts]
    error = errors.NONE if results or not request.session_id else errors.FETCH_SESSION_ID_NOT_FOUND
    services.sender.answer_pieces(connection, fetch.response(version, correlation, results, error, 0))


def _remembered(
    services: FetchServices, connection: Connection, version: int, request: FetchRequest, session: FetchSession | None,
    buffer: memoryview, head: int, start: int, end: int,
) -> RepeatedFetch | None:  # fmt: skip
    """The fast path to try first for the connection's next Fetch, if this one is of the kind that is repeated."""
    if version < fetch_single.FIRST or (request.rack and services.by_rack):
        return None
    if services.quotas is not None and services.quotas.limits(connection):
        return None
    follower = request.replica >= 0
    kind = FollowerTarget if follower else FetchTarget
    target = services.fetch_targets.get(services, version, request, services.fetch_max_bytes, kind)
    if target is None or not (follower or _may_read(services, connection, target)):
        return None
    at = fetch_single.offset_at(buffer, start, end, version)
    back = bytes(buffer[at + 8 : end])
    if session is None:
        if follower or request.session_epoch != SESSIONLESS or request.session_id:
            return None
        return RepeatedFetch(services, connection, version, request, target, (bytes(buffer[head:at]), back))
    if request.session_epoch == INITIAL or not (follower or len(session.parts) == 1):
        return None
    epoch = fetch_single.epoch_at(start, version)
    frame = bytes(buffer[head:epoch]), bytes(buffer[epoch + 4 : at]), back
    repeated = RepeatedFollowerFetch if follower else RepeatedSessionFetch
    return repeated(services, connection, version, request, target, frame, session)


def _may_read(services: FetchServices, connection: Connection, target: FetchTarget) -> bool:
    return services.authorization.of_connection(connection).sees(READ, TOPIC, target.partition.topic)


API = Api(key=1, name="Fetch", versions=fetch.VERSIONS, fast_path=take, flexible=fetch.FLEXIBLE)
