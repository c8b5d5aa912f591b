"""A follower's requests to one leader, and its handling of the responses. Pure: no socket, no clock, no log.

One request is in flight at a time. `request` returns what to send; the caller passes the response to `answered` (or
`offsets_found`), each part of it to `requested` and `classify`, and reports what it did with a part through
`resume_at`, `hold`, `delay`, `back_off` or `look_up_offsets`. A follower must not send an offset that it has not
reached yet: the high watermark depends on it. Where it does not depend on it (cluster.replication.pipelined_fetch), the
next request may leave before those reports.

A partition is in one of five states: FETCHING; HELD, its data wait for its lock; TRUNCATING, a truncation of its log is
under way, which may take long; DELAYED, left out of requests for a while; LOOKUP, the leader has nothing at the end of
the follower's log, and the follower requests the leader's offsets. In a session (cluster.replication.fetch_session) an
idle request costs the same for one partition and for thousands.

Facts are from Kafka's AbstractFetcherThread. Times are in ms of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.cluster.replication import pipelined_fetch
from odradek.cluster.replication.fetch_session import FetchSessionHandler, Key
from odradek.cluster.replication.pipelined_fetch import PendingAppend
from odradek.protocol import errors
from odradek.protocol.fetch import FetchPartition, FetchRequest
from odradek.protocol.fetch_client import EARLIEST, LATEST

APPEND, DIVERGED, OUT_OF_RANGE, DELAY = "append", "diverged", "out of range", "delay"
TRUNCATE, RESTART = "truncate", "restart"

HELD_WAIT_MS = 5  # fetch wait at the leader while a partition is held here and will soon be fetched again
FIRST_DELAY_MS = 10
LONGEST_BACKOFF_MS = 64_000

# The leader does not know of its leadership yet, or has lost it: newer metadata will follow.
TRANSIENT = frozenset({
    errors.UNKNOWN_TOPIC_OR_PARTITION, errors.LEADER_NOT_AVAILABLE, errors.NOT_LEADER_OR_FOLLOWER,
    errors.FENCED_LEADER_EPOCH, errors.UNKNOWN_LEADER_EPOCH, errors.OFFSET_NOT_AVAILABLE, errors.UNKNOWN_TOPIC_ID,
})  # fmt: skip


class Position(NamedTuple):
    """The state of a follower's log: the leader epoch that it follows, its end, the epoch of its last record (-1:
    unknown), its start."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class FetcherConfig(NamedTuple):
    """Fields that all requests of a follower share: its broker id, and replica.fetch.*."""

    replica: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    part_bytes: int = 1 << 20
    backoff_ms: int = 1000


class OffsetLookup(NamedTuple):
    """A request for the log ends (LATEST) or starts (EARLIEST) of some partitions, with their leader epochs."""

    at: int
    partitions: list[tuple[Key, int]]


class Truncation(NamedTuple):
    """How to fix a log that does not match its leader's: TRUNCATE it to `offset`, or RESTART it there, empty."""

    key: Key
    how: str
    offset: int


class PartitionFetchStates:
    """The partitions that one connection to a leader fetches."""

    def __init__(self, config: FetcherConfig) -> None:
        self.config = config
        self._parts: dict[Key, FetchPartition] = {}  # all partitions, with the fetch part to request
        self._held: set[Key] = set()
        self._truncating: set[Key] = set()
        self._delayed: dict[Key, int] = {}  # left out until (ms)
        self._lookups: dict[Key, int | None] = {}  # the leader's log end, once known
        self._failures: dict[Key, int] = {}  # failures in a row
        self._delays: dict[Key, tuple[int, int]] = {}  # recent count of `delay`, and time of the last one
        self._session = FetchSessionHandler()
        self._session_errors = 0  # of the session, in a row
        self._not_before = 0

    def __len__(self) -> int:
        return len(self._parts)

    # -- assignments

    def assign(self, key: Key, position: Position) -> None:
        """Fetch a partition from `position` on; drops all earlier state."""
        self.remove(key)
        self._parts[key] = FetchPartition(*key, *position, self.config.part_bytes)
        self._fetch_again(key)

    def remove(self, key: Key) -> None:
        """Stop fetching a partition."""
        self._exclude(key)
        self._parts.pop(key, None)
        self._failures.pop(key, None)
        self._delays.pop(key, None)

    def retry_delayed(self) -> None:
        """Retry left-out partitions after a metadata change: the leader may know them now."""
        for key in [key for key in self._delayed if key not in self._failures]:
            self._fetch_again(key)

    # -- requests

    def request(self, now_ms: int) -> FetchRequest | OffsetLookup | None:
        """The next request; None when there is nothing to request until `due_ms`."""
        for key in [key for key, due in self._delayed.items() if due <= now_ms]:
            self._fetch_again(key)
        if now_ms < self._not_before:
            return None
        return self._lookup() or (self._fetch(now_ms) if self._fetching else None)

    def due_ms(self) -> int | None:
        """The time of the next request, if there is none now; None: not before another call."""
        if self._not_before and (self._fetching or self._lookups):
            return self._not_before
        return min(self._delayed.values(), default=None)

    @property
    def _fetching(self) -> int:
        """The number of partitions in state FETCHING."""
        return len(self._parts) - len(self._held) - len(self._truncating) - len(self._delayed) - len(self._lookups)

    def _fetch(self, now_ms: int) -> FetchRequest:
        session, config = self._session, self.config
        parts, forgotten = session.build((key, part) for key, part in self._parts.items() if not self._is_excluded(key))
        return FetchRequest(
            config.replica, self._wait_ms(now_ms), config.min_bytes, config.max_bytes, 0, session.id, session.epoch,
            parts, forgotten, b"",
        )  # fmt: skip

    def _wait_ms(self, now_ms: int) -> int:
        """How long the leader may wait: until a held or left-out partition is due."""
        longest = self.config.max_wait_ms
        if self._held:
            longest = min(longest, HELD_WAIT_MS)
        due = min(self._delayed.values(), default=now_ms + longest)
        return min(longest, due - now_ms)

    def _lookup(self) -> OffsetLookup | None:
        """A request for log ends first, then for log starts where needed."""
        for at, known in ((LATEST, False), (EARLIEST, True)):
            keys = [key for key, end in self._lookups.items() if (end is not None) == known]
            if keys:
                return OffsetLookup(at, [(key, self._parts[key].leader_epoch) for key in keys])
        return None

    # -- answers

    def answered(self, error: int, session_id: int, now_ms: int) -> bool:
        """Record a fetch response; whether its parts count. After a session error a new session starts at once, after
        more errors in a row with a backoff.
        """
        if error == errors.NONE:
            self._session_errors = self._not_before = 0
            self._session.answered(session_id)
            return True
        self._session.refused(error)
        self._session_errors += 1
        if self._session_errors > 1:
            self._not_before = now_ms + self.config.backoff_ms
        return False

    def lost(self) -> None:
        """Record a lost connection: the session and the pending response are lost with it."""
        self._session = FetchSessionHandler()
        self._session_errors = self._not_before = 0
        self._lookups = dict.fromkeys(self._lookups)

    def requested(self, key: Key) -> FetchPartition | None:
        """The request part that the response's part for `key` answers; None when it is no longer fetched."""
        part = self._parts.get(key)
        return part if part is not None and not self._is_excluded(key) and part == self._session.sent.get(key) else None

    def classify(self, error: int, diverging: tuple[int, int] | None) -> str:
        """How to handle a part of a response: APPEND, DIVERGED, OUT_OF_RANGE, or DELAY."""
        if error == errors.NONE:
            return APPEND if diverging is None else DIVERGED
        return OUT_OF_RANGE if error == errors.OFFSET_OUT_OF_RANGE else DELAY

    def pipeline(self, pending: Sequence[PendingAppend]) -> bool:
        """Whether the next request may leave before the received records are appended; if so it requests more.

        Afterwards `resume_at` reports the log's position as usual. If that differs from the position sent to the
        leader, or if the partition is no longer FETCHING by then, `requested` discards the response.
        """
        parts = {
            one.key: part for one in pending if (part := pipelined_fetch.beyond(self._parts[one.key], one)) is not None
        }
        if not parts or len(parts) < len(pending):
            return False
        for key, part in parts.items():
            self._parts[key] = part
            self._session.change(key, part)
        return True

    def resume_at(self, key: Key, position: Position) -> None:
        """Continue from `position` after an append or a truncation."""
        self.set_position(key, position)
        if key in self._parts:
            self._fetch_again(key)

    def set_position(self, key: Key, position: Position) -> None:
        """Record the log's position; the partition's state stays."""
        if key in self._parts:
            self._parts[key] = FetchPartition(*key, *position, self.config.part_bytes)

    def succeeded(self, key: Key) -> None:
        """Reset the failures in a row: the leader's data were usable."""
        self._failures.pop(key, None)

    def hold(self, key: Key) -> None:
        """Another process has the partition's lock: the caller keeps the data, and they are not requested again."""
        if self._exclude(key):
            self._held.add(key)

    def begin_truncation(self, key: Key) -> None:
        """A truncation of the log is under way: `resume_at` or `back_off` reports its end."""
        if self._exclude(key):
            self._truncating.add(key)

    def delay(self, key: Key, now_ms: int) -> None:
        """Leave the partition out, at most until a metadata change: briefly first, then longer, up to the backoff.

        A new leader may learn of its election some milliseconds after its followers, and records wait meanwhile.
        """
        recent, since = self._delays.get(key, (0, now_ms))
        delays = 0 if now_ms - since > 2 * self.config.backoff_ms else recent
        self._delays[key] = (delays + 1, now_ms)
        if self._exclude(key):
            self._delayed[key] = now_ms + min(self.config.backoff_ms, FIRST_DELAY_MS << min(delays, 16))

    def pause(self, keys: Iterable[Key], now_ms: int, pause_ms: int) -> None:
        """Leave fetched partitions out for a while, without an error (cluster.replication.throttles)."""
        for key in keys:
            if key in self._parts and not (self._is_excluded(key) and self._delayed.get(key, now_ms + 1) > now_ms):
                self._exclude(key)
                self._delayed[key] = now_ms + pause_ms

    def back_off(self, key: Key, now_ms: int) -> int:
        """The leader's data are unusable: leave the partition out, longer each time in a row. Returns the ms.

        Call `set_position` with the log's end too: after `pipeline` the last request may claim all received records.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(self.config.backoff_ms << min(failures - 1, 16), max(LONGEST_BACKOFF_MS, self.config.backoff_ms))
        if self._exclude(key):
            self._delayed[key] = now_ms + pause
        return pause

    def look_up_offsets(self, key: Key) -> None:
        """The leader has nothing at the end of the log: request the leader's log end and log start."""
        if self._exclude(key):
            self._lookups[key] = None

    def offsets_found(
        self, lookup: OffsetLookup, offsets: Mapping[Key, tuple[int, int]], now_ms: int
    ) -> list[Truncation]:
        """The truncations to make after the response to `lookup`, (error, offset) by partition. Leaves out missing
        partitions.

        As Kafka's fetchOffsetAndTruncate: truncate a log that ends after the leader's; restart one that ends before the
        leader's start.
        """
        truncations = []
        for key, epoch in lookup.partitions:
            if key not in self._lookups or self._parts[key].leader_epoch != epoch:
                continue
            error, offset = offsets.get(key, (errors.UNKNOWN_TOPIC_OR_PARTITION, -1))
            own = self._parts[key].offset
            if error or offset < 0:
                self.delay(key, now_ms)
            elif lookup.at == LATEST and offset >= own:
                self._lookups[key] = offset
            elif lookup.at == LATEST:
                truncations.append(Truncation(key, TRUNCATE, offset))
            elif offset > own:
                truncations.append(Truncation(key, RESTART, offset))
            else:  # the leader has the offset that it reported as missing
                self.back_off(key, now_ms)
        return truncations

    # -- conditions

    def _is_excluded(self, key: Key) -> bool:
        return key in self._held or key in self._truncating or key in self._delayed or key in self._lookups

    def _exclude(self, key: Key) -> bool:
        """Clear its state and take it out of the session; False when it is not assigned here."""
        self._held.discard(key)
        self._truncating.discard(key)
        self._delayed.pop(key, None)
        self._lookups.pop(key, None)
        self._session.change(key, None)
        return key in self._parts

    def _fetch_again(self, key: Key) -> None:
        self._exclude(key)
        self._session.change(key, self._parts[key])
