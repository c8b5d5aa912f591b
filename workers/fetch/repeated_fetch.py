"""The Fetch request that a consumer of one partition repeats: only its offset changes.

Each connection remembers the bytes of its last Fetch (`RepeatedFetch`); a request that differs only in the offset is
not decoded. Such requests share their source (`FetchTarget`): the answer to all that wait for the same offset is read
and encoded once. Everything that is not plain (an error, an open transaction, aborted transactions) takes the slow path
of workers.fetch.fetching; RepeatedFetch is a subclass of its Fetch.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from odradek.ipc.slots import F_ABORTED, F_HW, F_LEO, F_LOG_START, F_UNSTABLE, last_stable
from odradek.protocol import fetch_single
from odradek.protocol.fetch import TOPIC_IDS
from odradek.storage.log import read
from odradek.workers.fetch import nearest_replica
from odradek.workers.fetch.fetching import READ_COMMITTED, Fetch
from odradek.workers.fetch.partition_check import refusal

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Mark
    from odradek.ipc.slots import Slot
    from odradek.protocol.fetch import FetchPart, FetchRequest
    from odradek.storage.files.openfile import FileSlice
    from odradek.storage.log.partition import Partition
    from odradek.workers.fetch.sessions import Session
    from odradek.workers.net.connection import Connection
    from odradek.workers.worker import Worker

_MOST_TARGETS = 10_000
_SMALL = 16384  # bytes of records that are copied instead of sent from the file: one send call, and a shared answer
_I64 = struct.Struct(">q")
NOT_PLAIN = -1

# Size of the records; the frame behind its opening; (high watermark, log start).
Found = tuple[int, bytes, "FileSlice | None", bytes, tuple[int, int]]
Key = tuple["type[FetchTarget]", int, bytes, int, int, int, int, int]


class FetchTarget:
    """A partition as one kind of request sees it, until the metadata changes, and its last short answer."""

    __slots__ = (
        "_committed", "_end", "_epoch", "_followers", "_found", "_offset", "_sequence", "_slot", "form", "known",
        "most", "partition", "slots",
    )  # fmt: skip

    def __init__(self, partition: Partition, version: int, part: FetchPart, committed: bool, most: int) -> None:
        self.partition = partition
        self._slot = partition.slot
        self.slots = [partition.slot]
        self.form = fetch_single.Form(version, part.topic, part.partition, committed)
        self.most = most
        self._committed = committed
        self._followers = version >= nearest_replica.FIRST
        self._epoch = part.leader_epoch
        self._sequence = -1
        self.known = (-1, -1)  # the high watermark and log start last found
        self._offset: int | None = None  # of the last answer, if it was short; clients may ask for any number
        self._end: int | None = None
        self._found: Found | None = None

    def find(self, offset: int) -> Found | None:
        """The answer from `offset` on; None when it is not plain."""
        slot = self._slot
        sequence = slot.words[slot.at]
        if sequence == self._sequence and offset == self._offset:
            return self._found
        self._end = self._offset = None
        found = self._find(slot.read(), offset)
        if found is not None and found[2] is None:
            self._offset, self._found = offset, found
        self._sequence = sequence
        return found

    def goes_on(self, piece: FileSlice) -> bool:
        """Whether there are more records behind `piece`, the last result of `find`."""
        return self._end is not None and piece.following < self._end

    def at_end(self, offset: int) -> bool:
        """Whether the slot is unchanged since `find` read up to `offset`, the end of the readable log."""
        slot = self._slot
        return offset == self._end and slot.words[slot.at] == self._sequence

    def _find(self, values: tuple[int, ...], offset: int) -> Found | None:
        upto = self._upto(values, offset)
        if upto == NOT_PLAIN:
            return None
        records = self._records(values, offset, upto) if offset < upto else b""
        if records is None:
            return None
        self._end, form, hw = upto, self.form, values[F_HW]
        stable = hw if values[F_UNSTABLE] < 0 else last_stable(values)
        self.known = known = hw, values[F_LOG_START]
        if isinstance(records, bytes):
            size = len(records)
            return size, form.head(hw, stable, values[F_LOG_START], size) + records + form.tail, None, b"", known
        return records.size, form.head(hw, stable, values[F_LOG_START], records.size), records, form.tail, known

    def _upto(self, values: tuple[int, ...], offset: int) -> int:
        """The end of the records that may be read from `offset` on; NOT_PLAIN when the answer is not plain."""
        if (
            refusal(self.partition, values, self._epoch, self._followers)
            or not values[F_LOG_START] <= offset <= values[F_LEO]
            or (self._committed and (values[F_UNSTABLE] >= 0 or values[F_ABORTED]))
        ):
            return NOT_PLAIN
        return values[F_HW]

    def _records(self, values: tuple[int, ...], offset: int, upto: int) -> bytes | FileSlice | None:
        records = None
        try:
            if upto == values[F_LEO]:
                records = read.end_of_log(self.partition, values, offset, min(self.most, _SMALL))
            return read.fetch(self.partition, values, offset, upto, self.most) if records is None else records
        except Exception:  # the slow path reports the error
            return None


class FetchTargets:
    """A worker's targets, until the metadata changes."""

    def __init__(self) -> None:
        self._metadata: Mark | None = None
        self._known: dict[Key, FetchTarget] = {}

    def get(self, worker: Worker, version: int, request: FetchRequest, kind: type[FetchTarget]) -> FetchTarget | None:
        """The target of a request for one partition; None when there is no such partition or it is not plain."""
        if worker.snapshot.mark is not self._metadata or len(self._known) >= _MOST_TARGETS:
            self._metadata = worker.snapshot.mark
            self._known.clear()
        (part,) = request.parts
        if part.last_epoch >= 0 and kind is FetchTarget:  # a consumer that checks for divergence from this log
            return None
        most = min(part.max_bytes, max(0, min(request.max_bytes, worker.fetch_max_bytes)))
        key = (kind, version, part.topic, part.partition, request.isolation, part.leader_epoch, part.last_epoch, most)
        target = self._known.get(key)
        if target is None:
            partition = worker.partition_of(part.topic, part.partition, version >= TOPIC_IDS)
            if partition is None or (version < 10 and partition.config.compression_type == "zstd"):
                return None
            committed = request.isolation == READ_COMMITTED
            target = self._known[key] = kind(partition, version, part, committed, most)
        return target


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

    def __init__(
        self, worker: Worker, connection: Connection, version: int, request: FetchRequest, target: FetchTarget,
        frame: tuple[bytes, bytes], session: Session | None = None,
    ) -> None:  # fmt: skip
        super().__init__(worker, connection, version, 0, request, session)
        self._front, self._back = frame
        self._session_id = 0 if session is None else session.id
        self._target = target
        self._metadata = worker.snapshot.mark
        self._wait = request.max_wait_ms / 1000
        self._least = request.min_bytes
        self._waits = self._wait > 0 and self._least > 0
        self._offset = 0
        self._found: Found | None = None

    def again(self, version: int, correlation: int, buffer: memoryview, head: int, end: int) -> bool:
        """Answer or park the request in buffer[head:end], if it equals this one except for the offset."""
        front, data = self._front, buffer.obj
        at = head + len(front)
        if (
            data.find(front, head, at) != head  # type: ignore[attr-defined]  # no slice
            or data.find(self._back, at + 8, end) != at + 8  # type: ignore[attr-defined]
            or at + 8 + len(self._back) != end
            or version != self.version
            or self._metadata is not self.worker.snapshot.mark
        ):
            return False
        (self._offset,) = _I64.unpack_from(buffer, at)
        self.correlation = correlation
        self.connection.waiting = True
        self.start()
        return True

    def start(self) -> None:
        waits = self._waits and not self.worker.draining
        if waits and self._at_end():
            self._park()
            return
        found = self._find()
        if found is None:
            super().start()
        elif waits and not self._suffices(found):
            self._park()
        else:
            self._reply(found)

    def _park(self) -> None:
        self.deadline = time.monotonic() + self._wait
        self.slots = self._watched()
        self.connection.parked = self
        self.worker.parking.park(self)

    def _watched(self) -> list[Slot]:
        return self._target.slots

    def look(self) -> bool:
        if self._at_end():
            return False
        found = self._find()
        return super().look() if found is None else self._suffices(found)

    def _suffices(self, found: Found) -> bool:
        """Whether there are enough bytes, or the next records are in another segment (Fetch._read)."""
        return found[0] >= self._least or (found[2] is not None and self._target.goes_on(found[2]))

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
        """Whether nothing has changed since the last look reached the end."""
        return self._target.at_end(self._offset) and self._metadata is self.worker.snapshot.mark

    def _find(self) -> Found | None:
        """`FetchTarget.find`; None, for the slow path, also when the metadata has changed since the request came."""
        found = self._target.find(self._offset) if self._metadata is self.worker.snapshot.mark else None
        self._found = found
        if found is None:
            self._spell_out()
        return found

    def _spell_out(self) -> None:
        """Set `parts` for the slow path."""
        self.parts = [part._replace(offset=self._offset) for part in self.request.parts]

    def _reply(self, found: Found) -> None:
        size, head, piece, tail, _ = found
        form, worker, connection = self._target.form, self.worker, self.connection
        if piece is None:
            worker.loop.answer_bytes(connection, form.opening(len(head), self.correlation, self._session_id) + head)
            return
        opening = form.opening(len(head) + size + len(tail), self.correlation, self._session_id)
        frame = [opening + head, piece, tail] if tail else [opening + head, piece]
        worker.pager.answer(connection, frame)
