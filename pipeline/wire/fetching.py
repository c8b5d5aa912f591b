"""Record batches over the wire: the offsets of a range as the leader keeps them, not decoded.

The next answer is asked for before the last one is handed on, so the broker works while the batches are decoded.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.protocol.consumer import FetchRequest
from odradek.pipeline.batches import whole
from odradek.pipeline.errors import DataLoss, PipelineError
from odradek.pipeline.types import EARLIEST, LATEST, Chunk, Leader, Range
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.patience import Later, Patience, check
from odradek.pipeline.wire.settings import Address

_OUT_OF_RANGE = 1
_LAST_BY_NAME = 12  # from version 13 on topics have ids
_NO_ID = bytes(16)


def read(kafka: Mapping[str, str], wanted: Range, committed: bool) -> Iterator[Chunk]:
    """All batches with offsets in `wanted`, from the partition's leader, whoever that is at the time.

    The first and the last may reach beyond it; the last chunk may be an empty one that leads to the end. With
    `committed` nothing is read that is not decided, and chunks name the transactions that were aborted. DataLoss when
    offsets are no more; PipelineError when there is no progress for kafka.default.api.timeout.ms, as when the range
    ends behind what can be read, and for what is no batch.
    """
    if wanted.size <= 0:
        return
    with Brokers(kafka) as brokers:
        yield from _Reading(brokers, wanted, committed).chunks()


class _Reading:
    """One range being read: from whom, and how far it is."""

    def __init__(self, brokers: Brokers, wanted: Range, committed: bool) -> None:
        self._brokers = brokers
        self._settings = brokers.settings
        self._wanted = wanted
        self._committed = committed
        self._at = wanted.start
        self._leader: Leader | None = None
        self._asked = False  # the leader, for what is at `_at`
        self._topic_id = _NO_ID

    def chunks(self) -> Iterator[Chunk]:
        """Until the end of the range; every chunk brings it nearer."""
        patience = Patience(self._settings)
        while self._at < self._wanted.end:
            try:
                part = self._take()
                chunk = self._chunk(part)
            except Later as later:
                self._lose()
                patience.pause(f"{self._name} cannot be read at offset {self._at}: {later}")
                continue
            if chunk is None:
                if self._nothing(part, patience):
                    return
                continue
            self._at = chunk.until
            self._ask_ahead()
            yield chunk
            patience = Patience(self._settings)

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    # -- asking

    def _take(self) -> Any:
        """What the leader says of the partition at `_at`; Later when it does not."""
        try:
            if not self._asked:
                self._ask()
            self._asked = False
            assert self._leader is not None
            answer = self._brokers.at(_address(self._leader)).take()
        except OSError as error:
            where = f"{self._leader.host}:{self._leader.port}: " if self._leader else ""
            raise Later(f"{where}{error}") from None
        check(answer.error_code or 0, "its leader")
        return answer.responses[0].partitions[0]

    def _ask(self) -> None:
        if self._leader is None:
            self._leader = self._find()
        self._brokers.at(_address(self._leader)).post(self._request(self._leader))
        self._asked = True

    def _ask_ahead(self) -> None:
        if self._at < self._wanted.end:
            try:
                self._ask()
            except OSError:
                self._lose()  # to be found again in the next turn

    def _lose(self) -> None:
        """Forget the leader, and what it was asked."""
        if self._leader is not None:
            self._brokers.drop(_address(self._leader))
        self._leader, self._asked = None, False

    def _find(self) -> Leader:
        leader = self._brokers.leaders_of([self._wanted.key])[self._wanted.key]
        if self._topic_id not in (_NO_ID, leader.topic_id):
            raise DataLoss(f"topic {self._wanted.topic!r} was deleted and made anew while {self._name} was read")
        self._topic_id = leader.topic_id
        return leader

    def _request(self, leader: Leader) -> FetchRequest:
        """At least one byte, for at most so long: a range that ends is there already, or nearly."""
        row = FetchRequest.FetchTopic.FetchPartition(
            partition=self._wanted.partition, current_leader_epoch=leader.epoch, fetch_offset=self._at,
            last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=self._settings.fetch_bytes,
        )  # fmt: skip
        topic = FetchRequest.FetchTopic(
            topic=self._wanted.topic, topic_id=uuid.UUID(bytes=leader.topic_id), partitions=[row]
        )
        return FetchRequest(
            max_wait_ms=self._settings.fetch_wait_ms, min_bytes=1, max_bytes=self._settings.fetch_bytes,
            isolation_level=int(self._committed), session_id=0, session_epoch=-1, topics=[topic],
            forgotten_topics_data=[], rack_id="", min_version=4,
            max_version=_LAST_BY_NAME if leader.topic_id == _NO_ID else FetchRequest.max_version,
        )  # fmt: skip

    # -- answers

    def _chunk(self, part: Any) -> Chunk | None:
        """What brings us nearer to the end; None when nothing does."""
        if part.error_code == _OUT_OF_RANGE:
            self._out_of_range()
        check(part.error_code, "its leader")
        data = part.records or b""
        try:
            found = whole(data, self._at, self._wanted.end)
        except ValueError as why:
            raise PipelineError(f"{self._name}: what its leader sent is {why}") from None
        if found.until <= self._at:
            return None
        aborted = tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ())
        return Chunk(memoryview(data)[found.begin : found.upto], aborted, found.until)

    def _nothing(self, part: Any, patience: Patience) -> bool:
        """Whether the range is at its end though it is not, for compaction left nothing there.

        An answer without records may also come from a broker that throttles, or that waits for remote storage; so
        only time tells. It seldom has to: compaction leaves the active segment alone, which has records as a rule.
        """
        end = part.last_stable_offset if self._committed else part.high_watermark
        if end >= self._wanted.end and patience.over():
            return True
        patience.pause(f"{self._name} can be read to offset {end} only, not from {self._at} to {self._wanted.end}")
        return False

    def _out_of_range(self) -> None:
        """DataLoss with what is there; Later when the offset is there after all."""
        key = self._wanted.key
        first, end = (self._brokers.offsets([key], at)[key] for at in (EARLIEST, LATEST))
        if first <= self._at <= end:
            raise Later("its leader had it not, and has it now")
        raise DataLoss(f"offset {self._at} of {self._name} is no more: there are {first} to {end - 1}")


def _address(leader: Leader) -> Address:
    return leader.host, leader.port
