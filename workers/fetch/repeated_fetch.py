"""The Fetch request that a consumer of one partition repeats: only its offset changes.

Each connection remembers the bytes of its last Fetch (`RepeatedFetch`); a request that differs only in the offset is
not decoded. What is not plain takes the slow path of workers.fetch.fetching; RepeatedFetch is a subclass of its Fetch.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from odradek.ipc.partition_counts import BYTES_OUT, FETCH_REQUESTS
from odradek.workers.fetch.fetching import Fetch

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot
    from odradek.protocol.fetch import FetchRequest
    from odradek.protocol.records.columns import Data
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.fetch.fetch_sessions import FetchSession
    from odradek.workers.fetch.fetch_targets import FetchTarget, Found
    from odradek.workers.net.connection import Connection

_I64 = struct.Struct(">q")


class RepeatedFetch(Fetch):
    """A connection's fetch of one partition: its last request, waiting or answered."""

    __slots__ = (
        "_back",
        "_found",
        "_front",
        "_least",
        "_metadata",
        "_offset",
        "_session_id",
        "_target",
        "_wait",
        "_waits",
    )

    key = 1

    def __init__(
        self, services: FetchServices, connection: Connection, version: int, request: FetchRequest, target: FetchTarget,
        frame: tuple[bytes, bytes], session: FetchSession | None = None,
    ) -> None:  # fmt: skip
        super().__init__(services, connection, version, 0, request, session)
        self._counted = True  # `start` counts, but for the slow path
        self._front, self._back = frame
        self._session_id = 0 if session is None else session.id
        self._target = target
        self._metadata = services.snapshot.identity
        self._wait = request.max_wait_ms / 1000
        self._least = request.min_bytes
        self._waits = self._wait > 0 and self._least > 0
        self._offset = 0
        self._found: Found | None = None

    def take(self, version: int, correlation: int, buffer: memoryview, head: int, end: int) -> bool:
        """Answer or delay the request in buffer[head:end], if it equals this one except for the offset."""
        data: Data = buffer.obj  # type: ignore[assignment]  # no slice: a memoryview has no find()
        front = self._front
        at = head + len(front)
        if (
            data.find(front, head, at) != head
            or data.find(self._back, at + 8, end) != at + 8
            or at + 8 + len(self._back) != end
            or version != self.version
            or self._metadata is not self.services.snapshot.identity
        ):
            return False
        (self._offset,) = _I64.unpack_from(buffer, at)
        self.correlation = correlation
        self.start()
        return True

    def start(self) -> None:
        waits = self._waits and not self.services.draining
        if waits and self._at_end():
            self._target.counts[FETCH_REQUESTS] += 1
            self._delay()
            return
        found = self._find()
        if found is None:
            self._counted = False
            super().start()
            return
        self._target.counts[FETCH_REQUESTS] += 1
        if waits and not self._suffices(found):
            self._delay()
        else:
            self._reply(found)

    def _delay(self) -> None:
        self.deadline = time.monotonic() + self._wait
        self.slots = self._watched()
        self.connection.delayed = self
        self.services.purgatory.watch(self)

    def _watched(self) -> list[Slot]:
        return self._target.slots

    def try_complete(self) -> bool:
        if self._at_end():
            return False
        found = self._find()
        return super().try_complete() if found is None else self._suffices(found)

    def _suffices(self, found: Found) -> bool:
        """Whether there are enough bytes, or the next records are in another segment (Fetch._read)."""
        return found[0] >= self._least or (found[2] is not None and self._target.has_more(found[2]))

    def answer(self) -> None:
        if self._found is None:
            super().answer()
        else:
            self._reply(self._found)

    def expire(self) -> None:
        found = self._find()
        if found is None:
            super().expire()
        else:
            self._reply(found)

    def find_slots(self) -> list[Slot]:
        self._spell_out()
        return super().find_slots()

    def _at_end(self) -> bool:
        """Whether nothing has changed since the last read reached the end."""
        return self._target.at_end(self._offset) and self._metadata is self.services.snapshot.identity

    def _find(self) -> Found | None:
        """`FetchTarget.find`; None, for the slow path, also when the metadata has changed since the request came."""
        found = self._target.find(self._offset) if self._metadata is self.services.snapshot.identity else None
        self._found = found
        if found is None:
            self._spell_out()
        return found

    def _spell_out(self) -> None:
        """Set `parts` for the slow path."""
        self.parts = [part._replace(offset=self._offset) for part in self.request.parts]

    def _reply(self, found: Found) -> None:
        size, head, piece, tail, _ = found
        target, services, connection = self._target, self.services, self.connection
        form = target.form
        if size:
            target.counts[BYTES_OUT] += size
        if piece is None:
            services.sender.answer_bytes(connection, form.opening(len(head), self.correlation, self._session_id) + head)
            return
        opening = form.opening(len(head) + size + len(tail), self.correlation, self._session_id)
        frame = [opening + head, piece, tail] if tail else [opening + head, piece]
        services.pager.answer(connection, frame)
