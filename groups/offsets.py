"""The committed offsets of one group: what is in the log, and what is on its way there.

A commit is `prepare`d, appended by the caller, then `complete`d or `fail`ed. Only completed commits are ever
answered or fetched. Those of a transaction are in the log without counting: they are kept by producer id until its
marker comes, which makes them committed, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.groups.records import OffsetValue

TopicPartition = tuple[str, int]


class Committed(NamedTuple):
    """A commit in the log; `position` is the offset of its record's batch in `__consumer_offsets`."""

    value: OffsetValue
    position: int


class Offsets:
    """Committed and pending offsets by (topic, partition)."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Committed] = {}
        self._pending: dict[TopicPartition, OffsetValue] = {}
        self._open: dict[int, dict[TopicPartition, Committed]] = {}  # by producer id; position -1 until in the log
        self._open_by: dict[TopicPartition, set[int]] = {}  # the same the other way round: of whose transactions it is

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
        """Whether a commit of `tp` is under way or part of an open transaction (KIP-447's require_stable asks)."""
        return tp in self._pending or self._in_transaction(tp)

    def _in_transaction(self, tp: TopicPartition) -> bool:
        return tp in self._open_by

    def load(self, tp: TopicPartition, committed: Committed) -> None:
        """Take over what was read from the log."""
        self._committed[tp] = committed

    def prepare(self, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Note that these are being appended."""
        self._pending.update(offsets)

    def complete(self, offsets: Mapping[TopicPartition, OffsetValue], position: int) -> None:
        """They are in the log at `position`; a later record wins, whatever the order of completion.

        A pending commit that `remove` dropped meanwhile (its topic is gone) stays dropped.
        """
        for tp, value in offsets.items():
            if tp not in self._pending:
                continue
            known = self._committed.get(tp)
            if known is None or known.position <= position:  # commits of one batch complete in order
                self._committed[tp] = Committed(value, position)
            self._settle(tp, value)

    def fail(self, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """They did not reach the log."""
        for tp, value in offsets.items():
            self._settle(tp, value)

    def _settle(self, tp: TopicPartition, value: OffsetValue) -> None:
        if self._pending.get(tp) is value:  # else a newer commit of the same partition is under way
            del self._pending[tp]

    # -- transactions

    def load_open(self, producer_id: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Take over an open transaction that was read from the log."""
        for tp, committed in offsets.items():
            self._enter(producer_id, tp, committed)

    def prepare_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """Note that these are being appended as part of a transaction."""
        for tp, value in offsets.items():
            self._enter(producer_id, tp, Committed(value, -1))

    def _enter(self, producer_id: int, tp: TopicPartition, committed: Committed) -> None:
        self._open.setdefault(producer_id, {})[tp] = committed
        self._open_by.setdefault(tp, set()).add(producer_id)

    def _take_out(self, producer_id: int, tp: TopicPartition) -> Committed:
        known, ids = self._open[producer_id], self._open_by[tp]
        committed = known.pop(tp)
        ids.discard(producer_id)
        if not known:
            del self._open[producer_id]
        if not ids:
            del self._open_by[tp]
        return committed

    @property
    def open_producers(self) -> list[int]:
        """Whose open transactions have offsets here."""
        return list(self._open)

    def complete_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue], position: int) -> None:
        """They are in the log at `position`, for the transaction's marker to decide on."""
        known = self._open.get(producer_id, {})
        for tp, value in offsets.items():
            if tp in known and known[tp].value is value:
                known[tp] = Committed(value, position)

    def fail_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetValue]) -> None:
        """They did not reach the log."""
        known = self._open.get(producer_id, {})
        for tp, value in offsets.items():
            if tp in known and known[tp].value is value:
                self._take_out(producer_id, tp)

    def end_open(self, producer_id: int, commit: bool) -> None:
        """The transaction's marker is in the log: its offsets count, but for what was committed after them."""
        for tp in list(self._open.get(producer_id, ())):
            pending = self._take_out(producer_id, tp)
            known = self._committed.get(tp)
            if commit and pending.position >= 0 and (known is None or known.position < pending.position):
                self._committed[tp] = pending

    def partitions(self) -> list[TopicPartition]:
        """All partitions with a commit, also one under way."""
        return list({**self._committed, **self._pending, **dict.fromkeys(self._open_by)})

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Drop these, pending ones too; returns those that were there and so need a tombstone."""
        removed = []
        for tp in partitions:
            pending = self._pending.pop(tp, None)
            if self._committed.pop(tp, None) is not None or pending is not None or self._in_transaction(tp):
                removed.append(tp)
            for producer_id in list(self._open_by.get(tp, ())):
                self._take_out(producer_id, tp)
        return removed

    def restore(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Put removed offsets back, because their tombstones could not be appended."""
        for tp, committed in offsets.items():
            self._committed.setdefault(tp, committed)

    def snapshot(self) -> dict[TopicPartition, Committed]:
        """A copy for `restore`."""
        return dict(self._committed)

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None, subscribed: Collection[str] = ()
    ) -> list[TopicPartition]:
        """The partitions whose offsets are past their retention (KIP-211); all times are epoch ms.

        Retention runs from `since_ms` (when the group became empty) or, when None, from each commit. A commit
        with an expiry of its own (OffsetCommit v2-v4) keeps that one. Subscribed topics and partitions with a
        commit under way never expire.
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
