"""Fetch record batches over the wire: the offsets of a range in the leader's format, not decoded.

The next fetch is sent before the last response is handed on, so the broker works while the batches are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from odradek.pipeline.batches import Hole, whole
from odradek.pipeline.errors import DataLoss, PipelineError
from odradek.pipeline.types import EARLIEST, LATEST, NO_ID, Chunk, Leader, Range
from odradek.pipeline.wire import one_partition
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.fetch_response import PartitionData
from odradek.pipeline.wire.holes import Holes
from odradek.pipeline.wire.one_partition import address
from odradek.pipeline.wire.retries import Retries, RetryLater, check
from odradek.protocol.errors import OFFSET_OUT_OF_RANGE


def read(
    kafka: Mapping[str, str],
    wanted: Range,
    committed: bool,
    holes: Holes,
    topic_id: bytes = NO_ID,
    brokers: Brokers | None = None,
) -> Iterator[Chunk]:
    """All batches with offsets in `wanted`, from the partition's current leader.

    The first and the last may reach beyond it; the last chunk may be an empty one that leads to the end. With
    `committed` nothing undecided is read, and chunks name the aborted transactions. `topic_id` is that of the planned
    topic, if known. `holes` decides about offsets that no batch has. It connects for itself unless it gets `brokers`,
    which nothing else may use before the end.

    DataLoss when offsets no longer exist, or the topic is another one; PipelineError when there is no progress for
    kafka.default.api.timeout.ms, as when the range ends behind what is readable, and for data that is no batch.
    """
    if wanted.size <= 0:
        return
    with Brokers(kafka) if brokers is None else nullcontext(brokers) as connected:
        reading = _Reading(connected, wanted, committed, holes, topic_id)
        try:
            yield from reading.chunks()
        finally:
            reading.end()


class _Reading:
    """One range being read: its leader and its position."""

    def __init__(self, brokers: Brokers, wanted: Range, committed: bool, holes: Holes, topic_id: bytes) -> None:
        self._brokers = brokers
        self._settings = brokers.settings
        self._wanted = wanted
        self._committed = committed
        self._holes = holes
        self._at = wanted.start
        self._leader: Leader | None = None
        self._asked = False  # whether a fetch at `_at` is pending
        self._topic_id = topic_id

    def chunks(self) -> Iterator[Chunk]:
        """Read to the end of the range; every chunk makes progress."""
        retries = Retries(self._settings)
        while self._at < self._wanted.end:
            try:
                part = self._take(retries)
                chunk = self._chunk(part)
            except RetryLater as later:
                self._lose()
                retries.pause(f"{self._name} cannot be read at offset {self._at}: {later}")
                continue
            if chunk is None:
                if self._nothing(part, retries):
                    return
                continue
            self._at = chunk.until
            self._ask_ahead()
            yield chunk
            retries = Retries(self._settings)

    def end(self) -> None:
        """Leave no response behind for the next user of the connections."""
        if self._asked:
            self._lose()

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    # -- requests

    def _take(self, retries: Retries) -> PartitionData:
        """The leader's row for the partition at `_at`; RetryLater when there is none. Waits for a quota."""
        while True:
            try:
                if not self._asked:
                    self._ask()
                self._asked = False
                assert self._leader is not None
                connection = self._brokers.at(address(self._leader))
                part = one_partition.part(connection.take(), self._wanted.partition)
            except OSError as error:
                where = f"{self._leader.host}:{self._leader.port}: " if self._leader else ""
                raise RetryLater(f"{where}{error}") from None
            if part is not None:
                return part
            retries.allow(connection.muted)

    def _ask(self) -> None:
        if self._leader is None:
            self._leader = self._find()
        self._brokers.at(address(self._leader)).post(self._request(self._leader))
        self._asked = True

    def _ask_ahead(self) -> None:
        """Send the next fetch unless the leader wants no request yet: decoding goes on meanwhile."""
        if self._leader is None or self._at >= self._wanted.end:
            return
        try:
            if not self._brokers.at(address(self._leader)).muted:
                self._ask()
        except OSError:
            self._lose()  # the next turn finds it again

    def _lose(self) -> None:
        """Forget the leader, and the pending fetch."""
        if self._leader is not None:
            self._brokers.drop(address(self._leader))
        self._leader, self._asked = None, False

    def _find(self) -> Leader:
        leader = self._brokers.leaders_of([self._wanted.key])[self._wanted.key]
        if self._topic_id not in (NO_ID, leader.topic_id):
            raise DataLoss(f"topic {self._wanted.topic!r} was recreated while {self._name} was read")
        self._topic_id = leader.topic_id
        return leader

    def _request(self, leader: Leader) -> Any:
        settings = self._settings
        return one_partition.request(
            settings, self._wanted.key, leader, self._at, self._committed, settings.fetch_bytes
        )

    # -- responses

    def _chunk(self, part: PartitionData) -> Chunk | None:
        """The next chunk; None when the response makes no progress."""
        if part.error_code == OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        check(part.error_code, "its leader")
        data = part.records if part.records is not None else memoryview(b"")
        try:
            found = whole(data, self._at, self._wanted.end)
        except ValueError as why:
            raise PipelineError(f"{self._name}: what its leader sent is {why}") from None
        if found.until <= self._at:
            return None
        if found.holes:
            self._explain(found.holes)
        if found.until >= self._wanted.end and not found.bounded:
            self._holes.check_behind(found.until, part.high_watermark)
        aborted = tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions)
        return Chunk(data[found.begin : found.upto], aborted, found.until)

    def _explain(self, holes: list[Hole]) -> None:
        if not self._holes.believed:
            self._holes.lose(holes)
        elif not self._holes.proven(holes, self._at):
            raise RetryLater("the batches that it sent no longer exist")

    def _nothing(self, part: PartitionData, retries: Retries) -> bool:
        """Whether to end the range early: compaction left nothing there, or all of it is lost.

        A broker that waits for remote storage may also send a response without records, so retry for a while.
        """
        wanted, end = self._wanted, part.last_stable_offset if self._committed else part.high_watermark
        if end >= wanted.end:
            hole = (self._at, wanted.end)
            if self._holes.believed and self._holes.proven([hole], self._at):
                return True
            if retries.over():
                self._holes.silent(self._at)
                return True
        retries.pause(f"{self._name} can be read only to offset {end}, not from {self._at} to {wanted.end}")
        return False

    def _out_of_range(self) -> None:
        """DataLoss with the offsets that exist; RetryLater when the offset exists after all."""
        key = self._wanted.key
        first, end = (self._brokers.offsets([key], at)[key] for at in (EARLIEST, LATEST))
        if first <= self._at <= end:
            raise RetryLater("the leader lacked it before and has it now")
        raise DataLoss(f"offset {self._at} of {self._name} no longer exists: the log has {first} to {end - 1}")
