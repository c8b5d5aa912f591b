"""Where repeated Fetch requests read: a partition as one kind of request sees it, and its last short answer.

All requests that wait for the same offset share it: the answer is read and encoded once. Everything that is not plain
(an error, an open transaction, aborted transactions) is left to workers.fetch.fetching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc.slots import F_ABORTED, F_HW, F_LEO, F_LOG_START, F_UNSTABLE, last_stable
from odradek.protocol import fetch_single
from odradek.protocol.fetch import READ_COMMITTED, TOPIC_IDS
from odradek.storage.log import read
from odradek.workers.dispatch.partition_check import refusal
from odradek.workers.fetch import nearest_replica

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import SnapshotIdentity
    from odradek.protocol.fetch import FetchPartition, FetchRequest
    from odradek.storage.files.openfile import FileSlice
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.services import Services

_MOST_TARGETS = 10_000
_SMALL = 16384  # bytes of records that are copied instead of sent from the file: one send call, and a shared answer
NOT_PLAIN = -1

# Size of the records; the frame behind its opening; (high watermark, log start).
Found = tuple[int, bytes, "FileSlice | None", bytes, tuple[int, int]]
Key = tuple["type[FetchTarget]", int, bytes, int, int, int, int, int]


class FetchTarget:
    """A partition as one kind of request sees it, until the metadata changes, and its last short answer."""

    __slots__ = (
        "_committed", "_end", "_epoch", "_followers", "_found", "_offset", "_sequence", "_slot", "counts", "form",
        "known", "most", "partition", "slots",
    )  # fmt: skip

    def __init__(self, partition: Partition, version: int, part: FetchPartition, committed: bool, most: int) -> None:
        self.partition = partition
        self.counts = partition.counts  # counts the requests and what they get (ipc.partition_counts)
        self._slot = partition.slot
        self.slots = [partition.slot]
        self.form = fetch_single.ResponseTemplate(version, part.topic, part.partition, committed)
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

    def has_more(self, piece: FileSlice) -> bool:
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
        self._metadata: SnapshotIdentity | None = None
        self._known: dict[Key, FetchTarget] = {}

    def get(
        self, services: Services, version: int, request: FetchRequest, most: int, kind: type[FetchTarget]
    ) -> FetchTarget | None:  # fmt: skip
        """The target of a request for one partition; None when there is no such partition or it is not plain.

        `most`: bytes of records in an answer (fetch.max.bytes).
        """
        if services.snapshot.identity is not self._metadata or len(self._known) >= _MOST_TARGETS:
            self._metadata = services.snapshot.identity
            self._known.clear()
        (part,) = request.parts
        if part.last_epoch >= 0 and kind is FetchTarget:  # a consumer that checks for divergence from this log
            return None
        most = min(part.max_bytes, max(0, min(request.max_bytes, most)))
        key = (kind, version, part.topic, part.partition, request.isolation, part.leader_epoch, part.last_epoch, most)
        target = self._known.get(key)
        if target is None:
            partition = services.partition_of(part.topic, part.partition, version >= TOPIC_IDS)
            if partition is None or (version < 10 and partition.config.compression_type == "zstd"):
                return None
            committed = request.isolation == READ_COMMITTED
            target = self._known[key] = kind(partition, version, part, committed, most)
            if kind is not FetchTarget:
                target.counts = services.counts.replication
        return target
