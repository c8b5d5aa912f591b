"""Offsets of a range that no batch has, and whether that is legitimate.

In a topic that is not compacted every offset is in a batch, be it of a control record or of an aborted transaction: a
hole is a loss, or the trace of a damaged base offset, which no checksum covers. Compaction makes holes. A hole between
two batches that were read one after the other is believed. A hole at an end of what was read could be a batch with a
damaged offset that the leader skips, so it needs a proof: the batch before it and those behind it, in one response.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property

from odradek.pipeline.batches import Hole, checked
from odradek.pipeline.errors import DataLoss, MissingOffsets, PipelineError, UnknownTopic
from odradek.pipeline.types import EARLIEST, LATEST, Range
from odradek.pipeline.wire import one_partition
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.fetch_response import PartitionData
from odradek.pipeline.wire.retries import check

log = logging.getLogger(__name__)

_PIECE, _MORE = 1 << 16, 1 << 24  # bytes of a proof's fetches: a proof needs few batches


class Holes:
    """The holes of one range; a context manager, which closes its own connections. It connects at the first hole.

    `compacted`: whether compaction makes holes in the topic; None: as its cleanup.policy says. With `fail` a loss
    raises MissingOffsets, else it is a warning.
    """

    def __init__(
        self, kafka: Mapping[str, str], wanted: Range, compacted: bool | None = None, fail: bool = True
    ) -> None:
        self._kafka = kafka
        self._wanted = wanted
        self._said, self._fail = compacted, fail
        self._policy_error = ""  # why it is unknown whether the topic is compacted
        self.damaged = False  # the leader's files are damaged; the leader itself may skip the damage

    def __enter__(self) -> Holes:
        return self

    def __exit__(self, *_: object) -> None:
        if "_brokers" in self.__dict__:
            self._brokers.close()

    @cached_property
    def _brokers(self) -> Brokers:
        return Brokers(self._kafka)

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    @cached_property
    def _compacted(self) -> bool:
        if self._said is not None:
            return self._said
        try:
            return self._brokers.is_compacted(self._wanted.topic)
        except UnknownTopic:
            raise
        except PipelineError as why:
            self._policy_error = str(why)
            return False

    @property
    def believed(self) -> bool:
        """Whether holes can be legitimate."""
        return self._compacted and not self.damaged

    # -- losses

    def lose(self, holes: Sequence[Hole]) -> None:
        """Report holes that are not legitimate. DataLoss where the log now begins behind a hole."""
        first, until = holes[0]
        self._check_start(first)
        more = f" (and {len(holes) - 1} more gaps)" if len(holes) > 1 else ""
        lost = sum(until - first for first, until in holes)
        self._tell(f"{self._name}: no batch has offsets {first} to {until - 1}{more}", lost)

    def silent(self, offset: int) -> None:
        """The leader sent nothing from `offset` to the end of the range until the timeout."""
        end = self._wanted.end
        text = f"{self._name}: the leader sends no batch with offsets {offset} to {end - 1} or later"
        if self.believed:
            log.warning("%s: they are taken for compacted", text)
            return
        self._check_start(offset)
        self._tell(text, end - offset)

    def check_behind(self, offset: int, log_end: int) -> None:
        """Check that the last batch of the range ends at `offset`: the next one begins there, or the log ends."""
        if offset > log_end:
            raise PipelineError(f"{self._name}: batch up to offset {offset - 1} in a log that ends at {log_end}")
        if offset < log_end and (found := self._ranges(self._fetch(offset, 1), offset)):
            first, _ = found[0]
            if first < offset:
                raise PipelineError(f"{self._name}: batch with offset {first} where {offset} is expected")
            if first > offset and not self.believed:
                self.lose([(offset, first)])

    def _check_start(self, offset: int) -> None:
        first, end = (self._brokers.offsets([self._wanted.key], at)[self._wanted.key] for at in (EARLIEST, LATEST))
        if first > offset:
            raise DataLoss(f"offset {offset} of {self._name} no longer exists: the log has {first} to {end - 1}")

    def _tell(self, text: str, lost: int) -> None:
        why = "damage was found there" if self.damaged else "the topic is not compacted"
        if self._policy_error:
            why = f"whether the topic is compacted is unknown ({self._policy_error})"
        if self._fail:
            raise MissingOffsets(
                f"{text}, and {why}: lost, or damaged (odradek.compacted=true if it once was compacted; with "
                "failOnDataLoss=false the query continues without them)"
            )
        log.warning("%s, and %s: up to %d offsets are left out (failOnDataLoss=false)", text, why, lost)

    # -- proofs

    def proven(self, holes: Sequence[Hole], begin: int) -> bool:
        """Prove the holes that end at the range's end, or start at `begin`, where the batch before was not read.

        False when the leader sends no batch behind. PipelineError for impossible batches.
        """
        doubtful = [hole for hole in holes if hole[0] == begin or hole[1] == self._wanted.end]
        with self._brokers.steady():
            return all(self._proven(hole) for hole in doubtful)

    def _proven(self, hole: Hole) -> bool:
        """Prove a hole by one response with the batch before it and what follows: no fetch can name a damaged batch.

        A response ends where a segment does; then the next segment is fetched alone.
        """
        at, most = self._before(hole[0]), _PIECE
        while found := self._ranges(self._fetch(at, most), at):
            behind = sum(first >= hole[1] for first, _ in found)
            if any(first < hole[1] and until > hole[0] for first, until in found):
                return False
            if behind > 1 or (behind and most == _MORE):
                return True
            if len(found) > 1 and not behind:
                at = found[-1][1] - 1
            elif most < _MORE:
                most = _MORE
            else:
                at, most = found[-1][1], _PIECE
        return False

    def _before(self, offset: int) -> int:
        """Where to fetch so that the response begins before `offset`, if anything precedes it."""
        first = self._brokers.offsets([self._wanted.key], EARLIEST)[self._wanted.key]
        step, at = 1, offset
        while at > first:
            at, step = max(first, offset - step), 2 * step
            found = self._ranges(self._fetch(at, 1), at)
            if found and found[0][0] < offset:
                break
        return at

    def _ranges(self, row: PartitionData, at: int) -> list[Hole]:
        """The offset ranges of the batches in a response to a fetch at `at`; none may end behind the log."""
        try:
            found = list(checked(row.records)) if row.records is not None else []
        except ValueError as why:
            raise PipelineError(f"{self._name}: what its leader sent from offset {at} on is {why}") from None
        if found and found[-1][1] > row.high_watermark:
            raise PipelineError(
                f"{self._name}: what its leader sent from offset {at} on is damaged: a batch with offset "
                f"{found[-1][0]} in a log that ends at {row.high_watermark}"
            )
        return found

    def _fetch(self, offset: int, most: int) -> PartitionData:
        """The leader's row for the partition at `offset`, with at most `most` bytes, or one batch."""
        while (row := self._brokers.insist(lambda: self._try_fetch(offset, most))) is None:
            pass
        return row

    def _try_fetch(self, offset: int, most: int) -> PartitionData | None:
        key, brokers = self._wanted.key, self._brokers
        leader = brokers.leaders_of([key])[key]
        asked = one_partition.request(brokers.settings, key, leader, offset, False, most)
        row = one_partition.part(brokers.call(one_partition.address(leader), asked), key[1])
        if row is not None:
            check(row.error_code, f"{self._name} at offset {offset}")
        return row
