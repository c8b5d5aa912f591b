"""Fetch sessions (KIP-227): remember the partitions that a client fetches, so that it need not repeat them.

Pure state: requests in, the partitions to read out. A worker keeps its own sessions; a request with the session of
another worker gets FETCH_SESSION_ID_NOT_FOUND, and the client opens a new one. When the limit is reached, a session
that was idle for EVICTION_S is evicted; if all are in use the client continues without one, or clients would evict each
other all the time. Left out: Kafka's rule that larger sessions may evict smaller ones.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any

from odradek.protocol import errors
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.protocol.wire import INT32_MAX, MOST_ELEMENTS

SESSIONLESS, INITIAL = -1, 0
MOST_PARTS = 1 << 20  # of all sessions together: a client may ask for partitions that do not exist
EVICTION_S = 120.0  # Kafka's min.incremental.fetch.session.eviction.ms
_LAST_EPOCH = INT32_MAX

Key = tuple[bytes, int]


class FetchSession:
    """One client's session; `parts` in the order in which they are served, `last_sent` what the client has.

    `by_id`: topics are named by their ids. `used`: time of the last request (seconds).
    """

    __slots__ = ("by_id", "epoch", "follower_partitions", "id", "last_sent", "parts", "used")

    def __init__(self, session_id: int, by_id: bool, now: float) -> None:
        self.id = session_id
        self.by_id = by_id
        self.used = now
        self.epoch = INITIAL
        self.parts: dict[Key, FetchPartition] = {}
        self.last_sent: dict[Key, tuple[int, int]] = {}  # (high watermark, log start)
        self.follower_partitions: Any = None  # of a follower (workers.fetch.follower_fetch.FollowerPartitions)

    def add(self, request: FetchRequest) -> None:
        """Add the partitions that a request names."""
        for part in request.parts:
            self.parts[(part.topic, part.partition)] = part

    def update(self, request: FetchRequest) -> None:
        """Apply the additions, changes and removals of an incremental request."""
        self.add(request)
        for key in request.forgotten:
            self.parts.pop(key, None)
            self.last_sent.pop(key, None)

    def changed_partitions(self, results: list[FetchResult]) -> list[FetchResult]:
        """The results to send: with records, an error, or a high watermark or log start new to the client."""
        sent = []
        for result in results:
            key = (result.topic, result.partition)
            known = (result.hw, result.log_start)
            special = result.error or result.diverging or result.preferred >= 0
            if result.payloads or special or self.last_sent.get(key) != known:
                sent.append(result)
                self.last_sent[key] = known
            if result.payloads and key in self.parts and self.epoch != INITIAL:
                self.parts[key] = self.parts.pop(key)  # served: to the end of the order
        return sent

    def advance(self) -> None:
        """The answer is sent: the client's next request carries the next epoch."""
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1


class FetchSessionCache:
    """A worker's sessions, at most `limit`. `now` is in seconds of any monotonic clock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, by_id: bool, now: float) -> tuple[int, FetchSession | None]:
        """(error, session) for a request: the session is None for a fetch without one."""
        if request.session_epoch == SESSIONLESS:
            self._sessions.pop(request.session_id, None)
            return errors.NONE, None
        if request.session_epoch == INITIAL:
            self._sessions.pop(request.session_id, None)
            return errors.NONE, self._new(request, by_id, now)
        return self._continue(request, by_id, now)

    def remove(self, session: FetchSession) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)

    def continues(self, session: FetchSession, epoch: int, now: float) -> bool:
        """`open` for a request with the next `epoch` of `session` that adds and forgets no partition."""
        if session.epoch != epoch or self._sessions.get(session.id) is not session:
            return False
        session.used = now
        self._sessions.move_to_end(session.id)
        return True

    def _new(self, request: FetchRequest, by_id: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._limit and not self._make_room(now):
            return None
        if self._parts() + len(request.parts) > MOST_PARTS:
            return None
        session = FetchSession(self._unused_id(), by_id, now)
        session.add(request)  # its forgotten partitions belong to no session that continues
        self._sessions[session.id] = session
        return session

    def _parts(self) -> int:
        """The number of parts of all sessions."""
        return sum(len(session.parts) for session in self._sessions.values())

    def _make_room(self, now: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.used < EVICTION_S:
            return False
        del self._sessions[oldest.id]
        return True

    def _is_too_large(self, session: FetchSession, request: FetchRequest, before: int) -> bool:
        """Whether a request makes a session that had `before` partitions, or all sessions together, too large."""
        if before + len(request.parts) > MOST_ELEMENTS:
            return True
        return len(session.parts) > before and self._parts() > MOST_PARTS

    def _unused_id(self) -> int:
        while True:
            session_id = random.randint(1, _LAST_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def _continue(self, request: FetchRequest, by_id: bool, now: float) -> tuple[int, FetchSession | None]:
        session = self._sessions.get(request.session_id)
        if session is None:
            return errors.FETCH_SESSION_ID_NOT_FOUND, None
        if session.epoch != request.session_epoch:
            return errors.INVALID_FETCH_SESSION_EPOCH, None
        if session.by_id != by_id:
            return errors.FETCH_SESSION_TOPIC_ID_ERROR, None
        before = len(session.parts)
        if before + len(request.parts) <= MOST_ELEMENTS:
            session.update(request)
        if self._is_too_large(session, request, before):  # the client must open a new one, with what it needs
            del self._sessions[session.id]
            return errors.FETCH_SESSION_ID_NOT_FOUND, None
        if not session.parts:  # the request removed its last partition
            del self._sessions[session.id]
            return errors.NONE, None
        session.used = now
        self._sessions.move_to_end(session.id)
        return errors.NONE, session
