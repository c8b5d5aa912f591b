"""The offsets of one group: committed ones in the log, and pending ones whose append is under way.

The caller calls `prepare` for a commit, appends it, then calls `complete` or `fail`. Only completed commits are
answered or fetched. Offsets of a transaction do not count when they are in the log: they are kept by producer id until
the transaction's marker commits or drops them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.groups.records import OffsetValue

TopicPartition = tuple[str, int]
_UnderWay = tuple[OffsetValue, ...]
"""Pending commits of one partition, in append order, compared by identity. Each has its own outcome: a failed one does
not affect those before it."""


class CommittedOffset(NamedTuple):
    """A commit in the log; `position` is the offset of its record's batch in `__consumer_offsets`."""

    value: OffsetValue
    position: int


class _InTransaction:
    """An open transaction's offsets of one partition: the last one in the log, and pending ones."""

    __slots__ = ("under_way", "written")

    def __init__(self) -> None:
        self.written: CommittedOffset | None = None
        self.under_way: _UnderWay = ()


class Offsets:
    """Committed and pending offsets by (topic, partition)."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, _UnderWay] = {}
        self._open: dict[int, dict[TopicPartition, _InTransaction]] = {}  # by producer id
        self._open_by: dict[TopicPartition, set[int]] = {}  # the reverse: producer ids by partition

    def __bool__(self) -> bool:
        return bool(self._committed or self._pending or self._open)

    def get(self, tp: TopicPartition) -> OffsetValue | None:
        """The committed offset of `tp`, or None."""
        found = self._committed.get(tp)
        return found.value if found else None

    def all(self) -> dict[TopicPartition, OffsetValue]:
        """Every committed offset."""
        return {tp: found.value for tp, found in self._committed.items()}

    def unstable(self, tp: TopicPartition) -> bool:
        """Whether a commit of `tp` is pending or part of an open transaction (for KIP-447's require_stable)."""
        return tp in self._pending or self._in_transaction(tp)

    def _in_transaction(self, tp: TopicPartition) -> bool:
        return tp in self._open_by

    def load(self, tp: TopicPartition, committed: CommittedOffset) -> None:
        """Load an offset from the log."""
        self._committed[tp] = committed

    def prepare(self, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Record that an append of these is under way."""
        for tp, value in offsets.items():
            self._pending[tp] = (*self._pending.get(tp, ()), value)

    def complete(self, offsets: Mapping[TopicPartition, OffsetValue], position: int) -> None:
        """Record that these are in the log at `position`; a later record wins, in any order of completion.

        A pending commit that `remove` dropped meanwhile (its topic was deleted) stays dropped.
        """
        for tp, value in offsets.items():
            if self._settle(tp, value):
                known = self._committed.get(tp)
                if known is None or known.position <= position:  # commits of one batch complete in order
                    self._committed[tp] = CommittedOffset(value, position)

    def fail(self, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Drop commits that did not reach the log. Others of the same partitions, earlier ones too, stay pending."""
        for tp, value in offsets.items():
            self._settle(tp, value)

    def _settle(self, tp: TopicPartition, value: OffsetValue) -> bool:
        """Remove a pending commit; whether it was still pending."""
        before = self._pending.get(tp, ())
        left = _without(before, value)
        if left:
            self._pending[tp] = left
        else:
            self._pending.pop(tp, None)
        return len(left) < len(before)

    # -- transactions

    def load_open(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Load an open transaction from the log."""
        for tp, committed in offsets.items():
            self._enter(producer_id, tp).written = committed

    def prepare_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Record that an append of these is under way in a transaction."""
        for tp, value in offsets.items():
            self._enter(producer_id, tp).under_way += (value,)

    def _enter(self, producer_id: int, tp: TopicPartition) -> _InTransaction:
        known = self._open.setdefault(producer_id, {})
        if tp not in known:
            known[tp] = _InTransaction()
            self._open_by.setdefault(tp, set()).add(producer_id)
        return known[tp]

    def _take_out(self, producer_id: int, tp: TopicPartition) -> CommittedOffset | None:
        known, ids = self._open[producer_id], self._open_by[tp]
        written = known.pop(tp).written
        ids.discard(producer_id)
        if not known:
            del self._open[producer_id]
        if not ids:
            del self._open_by[tp]
        return written

    @property
    def open_producers(self) -> list[int]:
        """Producer ids whose open transactions have offsets here."""
        return list(self._open)

    def complete_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue], position: int) -> None:
        """Record that these are in the log at `position`; the transaction's marker decides on them."""
        for tp, value in offsets.items():
            found = self._settle_open(producer_id, tp, value)
            if found is not None and (found.written is None or found.written.position <= position):
                found.written = CommittedOffset(value, position)

    def fail_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Drop offsets that did not reach the log. The transaction's earlier offsets of these partitions stay."""
        for tp, value in offsets.items():
            found = self._settle_open(producer_id, tp, value)
            if found is not None and found.written is None and not found.under_way:
                self._take_out(producer_id, tp)

    def _settle_open(self, producer_id: int, tp: TopicPartition, value: OffsetValue) -> _InTransaction | None:
        """The transaction's offsets of this partition without this value; None if the value is no longer pending."""
        found = self._open.get(producer_id, {}).get(tp)
        if found is None:
            return None
        left = _without(found.under_way, value)
        was_there = len(left) < len(found.under_way)
        found.under_way = left
        return found if was_there else None

    def end_open(self, producer_id: int, commit: bool) -> None:
        """Apply the transaction's marker: on commit its offsets count, unless later commits replace them."""
        for tp in list(self._open.get(producer_id, ())):
            written = self._take_out(producer_id, tp)
            known = self._committed.get(tp)
            if commit and written is not None and (known is None or known.position < written.position):
                self._committed[tp] = written

    def partitions(self) -> list[TopicPartition]:
        """All partitions with a commit, also a pending one."""
        return list({**self._committed, **self._pending, **dict.fromkeys(self._open_by)})

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Drop these, also pending ones; returns those that existed and so need a tombstone."""
        removed = []
        for tp in partitions:
            pending = self._pending.pop(tp, None)
            if self._committed.pop(tp, None) is not None or pending is not None or self._in_transaction(tp):
                removed.append(tp)
            for producer_id in list(self._open_by.get(tp, ())):
                self._take_out(producer_id, tp)
        return removed

    def restore(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Put removed offsets back, because their tombstones could not be appended."""
        for tp, committed in offsets.items():
            self._committed.setdefault(tp, committed)

    def snapshot(self) -> dict[TopicPartition, CommittedOffset]:
        """A copy for `restore`."""
        return dict(self._committed)

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None, subscribed: Collection[str] = ()
    ) -> list[TopicPartition]:
        """The partitions whose offsets are past their retention (KIP-211); all times are epoch ms.

        Retention runs from `since_ms` (when the group became empty) or, when None, from each commit. A commit
        with an expiry of its own (OffsetCommit v2-v4) keeps it. Subscribed topics and partitions with a pending
        commit never expire.
        """

        def is_expired(value: OffsetValue) -> bool:
            if value.expire_ms != -1:
                return now_ms >= value.expire_ms
            return now_ms - (value.commit_ms if since_ms is None else since_ms) >= retention_ms

        return [
            tp
            for tp, committed in self._committed.items()
            if tp[0] not in subscribed and not self.unstable(tp) and is_expired(committed.value)
        ]


def _without(under_way: _UnderWay, value: OffsetValue) -> _UnderWay:
    return tuple(one for one in under_way if one is not value)
