"""A model of the visible records of a compacted log, by a dictionary: Kafka's rules, as far as they determine it.

A record below what a round was begun for may be gone when a later committed one of its key is there, when its
transaction was aborted, or when it is a tombstone that was first looked at delete.retention.ms ago; it is gone when a
round has come to its end. Nothing else goes, nothing changes, and a deleted key does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .compaction_reader import Seen

_NEVER = 1 << 62


@dataclass
class Transaction:
    """One transaction; `commit` is None while it is open, `marker` the offset of what has ended it."""

    producer_id: int
    first: int
    commit: bool | None = None
    marker: int = _NEVER


@dataclass
class Written:
    """A record as it was sent. `looked_at`: when the first round began that might remove it, in ms."""

    seen: Seen
    transaction: Transaction | None = None
    looked_at: int = _NEVER

    @property
    def decided(self) -> bool:
        """Committed, or outside of transactions."""
        return self.transaction is None or bool(self.transaction.commit)

    @property
    def aborted(self) -> bool:
        return self.transaction is not None and self.transaction.commit is False


@dataclass
class Model:
    """A log. Offsets; times in ms."""

    delete_retention_ms: int
    log_start: int = 0
    leo: int = 0
    written: dict[int, Written] = field(default_factory=dict)
    open: dict[int, Transaction] = field(default_factory=dict)  # by producer id
    looked_upto: int = 0  # all rounds that were begun
    cleaned_upto: int = 0  # all rounds that came to their end
    looked_leo: int = 0  # the log end when the last round was begun: what it has seen decided stays decided

    # --- what happens

    def append(self, records: Iterable[Seen], transaction: Transaction | None = None) -> None:
        """Records that stand at the log end."""
        for one in records:
            self.written[one.offset] = Written(one, transaction)
            self.leo = one.offset + 1

    def begin(self, producer_id: int) -> Transaction:
        """The producer's open transaction; one that begins at the log end if it has none."""
        return self.open.setdefault(producer_id, Transaction(producer_id, self.leo))

    def end(self, producer_id: int, commit: bool) -> None:
        """A marker stands at the log end."""
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            transaction.commit, transaction.marker = commit, self.leo
        self.leo += 1

    def truncate(self, leo: int, log_start: int) -> None:
        """The log ends earlier, behind all that a round has seen; what was decided behind that is open again."""
        self.written = {offset: one for offset, one in self.written.items() if offset < leo}
        self.leo, self.log_start = leo, log_start
        self.open = {producer_id: one for producer_id, one in self.open.items() if one.first < leo}
        for transaction in (one.transaction for one in self.written.values()):
            if transaction is not None and transaction.marker >= leo:
                transaction.commit, transaction.marker = None, _NEVER
                self.open[transaction.producer_id] = transaction

    def look(self, upto: int, now_ms: int) -> None:
        """A round begins over what is below `upto`."""
        self.looked_upto = max(self.looked_upto, upto)
        self.looked_leo = self.leo
        for offset, one in self.written.items():
            if offset < upto:
                one.looked_at = min(one.looked_at, now_ms)

    @property
    def lso(self) -> int:
        """The last stable offset."""
        return max(self.log_start, min((one.first for one in self.open.values()), default=self.leo))

    # --- what is seen

    def compare(self, committed: list[Seen], uncommitted: list[Seen], now_ms: int) -> None:
        """AssertionError where what readers see is not what they may see."""
        for found in (committed, uncommitted):
            self._unaltered(found)
        assert [one for one in uncommitted if one.offset >= self.looked_upto] == self._tail(self.leo)
        decided = [one for one in self._tail(self.lso) if self.written[one.offset].decided]
        assert [one for one in committed if one.offset >= self.looked_upto] == decided, "not cleaned, and yet not there"
        assert all(one.offset < self.lso and self.written[one.offset].decided for one in committed), "not committed"
        self._compare_keys(committed, self.lso, now_ms)
        self._compare_keys([one for one in uncommitted if not self.written[one.offset].aborted], self.leo, now_ms)
        self._compare_clean(uncommitted)

    def _unaltered(self, found: list[Seen]) -> None:
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets)), "offsets do not rise"
        assert not offsets or offsets[0] >= self.log_start
        assert found == [self.written[offset].seen for offset in offsets], "a record has changed"

    def _tail(self, end: int) -> list[Seen]:
        first = max(self.looked_upto, self.log_start)
        return [self.written[offset].seen for offset in range(first, end) if offset in self.written]

    def _compare_keys(self, found: list[Seen], end: int, now_ms: int) -> None:
        """Below `end` the last record of each key is there; a tombstone may be gone, with all that was before it."""
        last = {
            one.seen.key: one
            for offset, one in sorted(self.written.items())
            if self.log_start <= offset < end and not one.aborted and (one.decided or end > self.lso)
        }
        there = {one.key: one for one in found}
        for key, one in last.items():
            if key is None:
                continue
            if key in there:
                assert there[key] == one.seen, "an older value reappeared"
            else:
                assert one.seen.value is None, f"the last value of {key!r} is lost: {one.seen}"
                assert now_ms >= one.looked_at + self.delete_retention_ms, f"a tombstone went early: {one.seen}"

    def _compare_clean(self, found: list[Seen]) -> None:
        """Below what was cleaned a key has one record, and nothing of an aborted transaction is left."""
        clean = [one for one in found if one.offset < self.cleaned_upto]
        assert not [one for one in clean if self.written[one.offset].aborted], "an aborted record was not removed"
        keys = [one.key for one in clean]
        assert None not in keys, "a record without a key was not removed"
        assert len(keys) == len(set(keys)), f"two records of a key below {self.cleaned_upto}: {clean}"
