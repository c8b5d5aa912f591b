"""A repeated fetch (workers.fetch.repeated_fetch) in a fetch session (KIP-227) with that one partition.

The requests of such a consumer name the partition with its new offset and the session's next epoch; requests without a
partition, because no records came, take the slow path. The session's state is the same as after the slow path.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from odradek.protocol.fetch import FetchPartition
from odradek.workers.fetch.fetch_targets import FetchTarget, Found
from odradek.workers.fetch.repeated_fetch import RepeatedFetch

if TYPE_CHECKING:
    from odradek.protocol.fetch import FetchRequest
    from odradek.protocol.records.columns import Data
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.fetch.fetch_sessions import FetchSession
    from odradek.workers.net.connection import Connection

_I32, _I64 = struct.Struct(">i"), struct.Struct(">q")


class RepeatedSessionFetch(RepeatedFetch):
    """`frame`: the bytes before the epoch, between epoch and offset, and behind the offset."""

    __slots__ = ("_key", "_middle", "_session")

    def __init__(
        self, services: FetchServices, connection: Connection, version: int, request: FetchRequest, target: FetchTarget,
        frame: tuple[bytes, bytes, bytes], session: FetchSession,
    ) -> None:  # fmt: skip
        front, self._middle, back = frame
        super().__init__(services, connection, version, request, target, (front, back), session)
        (part,) = request.parts
        self._key = (part.topic, part.partition)
        self._session = session

    def take(self, version: int, correlation: int, buffer: memoryview, head: int, end: int) -> bool:
        data: Data = buffer.obj  # type: ignore[assignment]  # no slice: a memoryview has no find()
        front, middle = self._front, self._middle
        epoch_at = head + len(front)
        at = epoch_at + 4 + len(middle)
        if (
            data.find(front, head, epoch_at) != head
            or data.find(middle, epoch_at + 4, at) != epoch_at + 4
            or data.find(self._back, at + 8, end) != at + 8
            or at + 8 + len(self._back) != end
            or version != self.version
            or self._metadata is not self.services.snapshot.identity
            or not self._continues(_I32.unpack_from(buffer, epoch_at)[0], _I64.unpack_from(buffer, at)[0])
        ):
            return False
        self.correlation = correlation
        self.start()
        return True

    def _is_current(self, session: FetchSession) -> bool:
        """Whether the session still has this partition, and no other."""
        return len(session.parts) == 1 and self._key in session.parts

    def _continues(self, epoch: int, offset: int) -> bool:
        """Apply the request to the session, if that still exists and `epoch` is its next one."""
        session = self._session
        if not self._is_current(session):
            return False
        if not self.services.sessions.continues(session, epoch, time.monotonic()):
            return False
        self._offset = offset
        part = self.request.parts[0]
        session.parts[self._key] = FetchPartition(*part[:3], offset, *part[4:])  # _replace takes three times as long
        return True

    def _reply(self, found: Found) -> None:
        session, known = self._session, found[4]
        session.advance()  # first: the next request may arrive as soon as this one is answered
        if not found[0] and session.last_sent.get(self._key) == known:
            form = self._target.form
            opening = form.opening(len(form.nothing), self.correlation, session.id)
            self.services.sender.answer_bytes(self.connection, opening + form.nothing)
            return
        session.last_sent[self._key] = known
        super()._reply(found)
