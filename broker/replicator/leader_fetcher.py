"""Fetches partitions from one leader over one connection: responses go into logs, log ends into requests.

A response is used in the turn in which its last byte arrives: its batches go from the receive buffer into the logs, and
the next request is sent before anything else; where possible (cluster.replication.pipelined_fetch) even before the
batches are appended, so that the leader reads while the follower writes. If another process has a partition's lock, its
part is copied and retried every millisecond, while the other partitions go on; they also go on during a truncation that
takes long (broker.replicator.truncations).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.broker.interbroker.connection import Address, Link
from odradek.broker.interbroker.connection import LinkLimits as LinkLimits
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.resolver import Resolver
from odradek.broker.replicator import follower_log, truncations
from odradek.broker.replicator.throttled_partitions import Throttled, ThrottledPartitions
from odradek.broker.replicator.truncations import Truncations
from odradek.cluster.replication import partition_fetch_states
from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.partition_fetch_states import (
    FetcherConfig,
    OffsetLookup,
    PartitionFetchStates,
    Position,
)
from odradek.cluster.replication.pipelined_fetch import PendingAppend
from odradek.cluster.replication.throttles import PAUSE_MS
from odradek.ipc.processes import COLUMN
from odradek.ipc.slots import F_HW, F_LEO
from odradek.protocol import errors, fetch_client
from odradek.protocol.fetch import FetchPartition, FetchRequest
from odradek.protocol.fetch_client import FetchedPartition, ListOffsetsPartition
from odradek.protocol.wire import next_correlation
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.storage.segment import fetched_batches
from odradek.storage.segment.fetched_batches import CorruptBatch, FetchedBatches, MisplacedBatch

log = logging.getLogger(__name__)

BUSY_MS = 1
_FETCHES, _APPENDS, _RECORDS, _BYTES, _ERRORS, _BUSY = (
    COLUMN[name] for name in ("fetch_requests", "appends", "messages_in", "bytes_in", "errors", "lock_waits")
)
_NAMES = {code: name for name, code in vars(errors).items() if name.isupper()}
_SHOWN = 5  # partitions named in a line of the log

CurrentParts = dict[Key, tuple[FetchPartition, FetchedPartition]]  # the part of the request, the part of the response


class LeaderFetcher:
    """One connection to another broker. `watch` polls its socket, `outdated` rechecks the slots, `row` counts."""

    def __init__(
        self, number: int, address: Address, limits: tuple[FetcherConfig, LinkLimits], resolver: Resolver,
        watch: Callable[[int, int, LeaderFetcher], None], outdated: Callable[[], None], row: memoryview,
        truncations_in_threads: Truncations | None = None, security: LinkSecurity | None = None,
    ) -> None:  # fmt: skip
        """Without `truncations_in_threads` the other partitions wait for each truncation."""
        self.address = address
        self.name = f"leader {number} at {address[0]}:{address[1]}"
        self._client = f"broker-{limits[0].replica}-fetcher".encode()
        self._states = PartitionFetchStates(limits[0])
        self.link = Link(self.name, address, self, resolver, limits[1], security)
        self._watch, self._outdated, self._row = watch, outdated, row
        self._partitions: dict[Key, Partition] = {}
        self._epochs: dict[Key, int] = {}  # leader epochs in which they are followed
        self._truncations = truncations_in_threads
        self._held: dict[Key, tuple[int, follower_log.Change]] = {}
        self._truncating: dict[Key, object] = {}  # the token of the running truncation
        # Of unknown epochs: no leader can detect a divergence, so they are truncated first.
        self._untruncated: set[Key] = set()
        self._retries: dict[Key, int] = {}  # when to assign again: their disk failed to give a position, or to cut
        self._delayed: dict[int, list[str]] = {}  # error → partitions of the current response
        self._throttled: ThrottledPartitions | None = None  # by a throttle
        self._in_flight: FetchRequest | OffsetLookup | None = None
        self._correlation = 0

    # -- for the loop

    @property
    def due_ms(self) -> int | None:
        """When `tick` is due (CLOCK_MONOTONIC); None: nothing will be due."""
        if self._held:
            return _now_ms() + BUSY_MS
        due = self._states.due_ms() if self.link.due_ms is None else self.link.due_ms
        return min([*self._retries.values(), *([] if due is None else [due])], default=None)

    def set_partitions(self, partitions: Mapping[Key, tuple[Partition, int]], throttled: Throttled | None) -> None:
        """Fetch these partitions, each in its leader epoch, and no others. The metadata or their slots have changed."""
        self._throttled = None if throttled is None else ThrottledPartitions(throttled, partitions, self._throttled)
        gone = self._partitions.keys() - partitions.keys()
        for key in gone:
            self._remove(key)
        self._states.retry_delayed()
        new = [key for key, one in partitions.items() if (self._partitions.get(key), self._epochs.get(key)) != one]
        for key in new:
            self._assign(key, *partitions[key])
        self.link.reconnect_now()
        if gone or new:
            log.info(
                "%s: fetching %d partitions, %d of them new or in a new leader epoch",
                self.name,
                len(partitions),
                len(new),
            )

    def tick(self, now_ms: int) -> None:
        """Do whatever is due."""
        for key, (epoch, change) in list(self._held.items()):
            self._change_log(key, epoch, change)
        for key in [key for key, due in self._retries.items() if due <= now_ms]:
            self._assign(key, self._partitions[key], self._epochs[key])
        self.link.tick(now_ms)

    def close(self) -> None:
        """Stop fetching."""
        self._truncating.clear()
        self.link.close()

    # -- assignments

    def _assign(self, key: Key, partition: Partition, epoch: int) -> None:
        self._remove(key)
        self._partitions[key], self._epochs[key] = partition, epoch
        where = self._position(key)
        if where is None:
            return
        self._states.assign(key, where)
        log.debug("%r: following %s in epoch %d from offset %d", partition, self.name, epoch, where.offset)
        if follower_log.is_unknown(where):
            self._untruncated.add(key)
            self._cut(key, epoch, partition.slot.read()[F_HW], follower_log.cut_unknown)

    def _position(self, key: Key) -> Position | None:
        """The position of a log. None when the disk fails: retries later, and fetches nothing before."""
        try:
            return follower_log.position(self._partitions[key])._replace(leader_epoch=self._epochs[key])
        except (OSError, CheckpointError) as error:
            log.error("%r: %s", self._partitions[key], error)
            self._states.remove(key)
            self._retries[key] = _now_ms() + self._states.config.backoff_ms
            return None

    def _remove(self, key: Key) -> None:
        self._partitions.pop(key, None)
        self._epochs.pop(key, None)
        self._held.pop(key, None)
        self._truncating.pop(key, None)
        self._untruncated.discard(key)
        self._retries.pop(key, None)
        self._states.remove(key)

    # -- the ConnectionHandler

    def watch(self, fd: int, events: int) -> None:
        """See connection.ConnectionHandler."""
        self._watch(fd, events, self)

    def request(self, link: Link) -> bytes | None:
        """See connection.ConnectionHandler."""
        now_ms = _now_ms()
        if self._throttled is not None:
            self._states.pause(self._throttled.paused(now_ms), now_ms, PAUSE_MS)
        self._in_flight = request = self._states.request(now_ms)
        self._correlation = next_correlation(self._correlation)
        if isinstance(request, FetchRequest):
            self._row[_FETCHES] += 1
            return fetch_client.encode_fetch(request, self._correlation, self._client)
        if request is not None:
            places = [
                ListOffsetsPartition(self._partitions[key].topic.encode(), key[1], epoch)
                for key, epoch in request.partitions
            ]
            replica = self._states.config.replica
            return fetch_client.encode_list_offsets(replica, request.at, places, self._correlation, self._client)
        return None

    def answer(self, link: Link, frame: memoryview) -> None:
        """See connection.ConnectionHandler."""
        if isinstance(self._in_flight, OffsetLookup):
            self._found(self._in_flight, fetch_client.parse_list_offsets(frame, self._correlation))
            return
        answer = fetch_client.parse_fetch(frame, self._correlation)
        if not self._states.answered(answer.error, answer.session_id, _now_ms()):
            log.info("%s: starting a new fetch session: %s", self.name, _name(answer.error))
            return
        parts = self._current_parts(answer.parts)
        found = self._pipeline(parts)
        for key, (sent, part) in parts.items():
            self._handle_part(key, sent, part, found.get(key))
        if self._delayed:
            self._log_delayed()

    def lost(self, link: Link) -> None:
        """See connection.ConnectionHandler."""
        self._row[_ERRORS] += 1
        self._states.lost()

    # -- responses

    def _current_parts(self, parts: Sequence[FetchedPartition]) -> CurrentParts:
        found = {(part.topic, part.partition): part for part in parts}
        return {key: (sent, part) for key, part in found.items() if (sent := self._states.requested(key)) is not None}

    def _pipeline(self, parts: CurrentParts) -> dict[Key, FetchedBatches]:
        """Send the next request before these are used, if possible; returns what was found in their records."""
        if self._throttled is not None or any(_needs_append_first(*one) for one in parts.values()):
            return {}
        found = {
            key: fetched_batches.find(part.records, sent.offset) for key, (sent, part) in parts.items() if part.records
        }
        pending = [PendingAppend(key, one.end, one.last_epoch, parts[key][1].hw) for key, one in found.items()]
        if all(one.fault is None for one in found.values()) and self._states.pipeline(pending):
            self.link.send_next()
        return found

    def _handle_part(
        self, key: Key, sent: FetchPartition, part: FetchedPartition, batches: FetchedBatches | None
    ) -> None:
        partition = self._partitions[key]
        about = self._states.classify(part.error, part.diverging)
        if about == partition_fetch_states.APPEND:
            self._append(key, sent, part, batches)
            if self._throttled is not None and key in self._throttled:
                behind = partition.slot.read()[F_LEO] < part.hw
                self._throttled.copied(key, len(part.records), behind, _now_ms())
        elif about == partition_fetch_states.DIVERGED:
            assert part.diverging is not None
            epoch, end = part.diverging
            self._cut(key, sent.leader_epoch, end, lambda one: follower_log.cut_diverging(one, epoch, end))
        elif about == partition_fetch_states.OUT_OF_RANGE:
            log.info(
                "%r: %s has nothing at offset %d: requesting its start and end offsets",
                partition,
                self.name,
                sent.offset,
            )
            self._states.look_up_offsets(key)
        else:
            self._states.delay(key, _now_ms())
            self._delayed.setdefault(part.error, []).append(repr(partition))

    def _append(self, key: Key, sent: FetchPartition, part: FetchedPartition, batches: FetchedBatches | None) -> None:
        partition = self._partitions[key]
        if not part.records and not follower_log.has_changes(partition, part):
            return
        now_ms = time.time_ns() // 1_000_000
        change = follower_log.append(partition, sent, part, now_ms, batches)

        def kept() -> follower_log.Change:
            copied = part._replace(records=memoryview(bytes(part.records)))
            return follower_log.append(partition, sent, copied, now_ms, batches)

        where = self._change_log(key, sent.leader_epoch, change, kept)
        if where is not None and part.records:
            self._row[_APPENDS] += 1
            self._row[_RECORDS] += where.offset - sent.offset
            self._row[_BYTES] += len(part.records)

    def _change_log(
        self, key: Key, epoch: int, change: follower_log.Change, kept: Callable[[], follower_log.Change] | None = None
    ) -> Position | None:
        """Change a log, if it is still followed in this epoch. `kept`: the change for later, if its lock is held."""
        try:
            where = follower_log.change(self._partitions[key], epoch, change)
        except LockNotAvailable:
            self._row[_BUSY] += 1
            self._states.hold(key)
            self._held[key] = (epoch, change if kept is None else kept())
        except Exception as error:
            self._not_done(key, error)
        else:
            self._held.pop(key, None)
            self._done(key, where)
            return where
        return None

    def _cut(self, key: Key, epoch: int, offset: int, cut: follower_log.Truncation) -> None:
        """Truncate a log at about `offset`: at once, or in a thread when that may take long."""
        partition = self._partitions[key]
        if self._truncations is None or not truncations.may_take_long(partition, offset):
            self._change_log(key, epoch, cut(partition))
            return
        self._states.begin_truncation(key)
        token = self._truncating[key] = object()
        is_current = partial(self._is_current, key, token)
        self._truncations.begin(partition, epoch, cut, is_current, partial(self._truncated, key, token))

    def _is_current(self, key: Key, token: object) -> bool:
        """Whether the truncation still belongs to this assignment. Called by another thread."""
        return self._truncating.get(key) is token

    def _truncated(self, key: Key, token: object, outcome: truncations.Outcome) -> None:
        """A truncation in a thread has ended. Ignored if the partition was assigned again meanwhile."""
        if not self._is_current(key, token):
            return
        del self._truncating[key]
        if isinstance(outcome, Exception):
            self._not_done(key, outcome)
        else:
            self._done(key, outcome)

    def _done(self, key: Key, where: Position) -> None:
        self._untruncated.discard(key)
        self._states.resume_at(key, where)
        self._states.succeeded(key)

    def _not_done(self, key: Key, error: Exception) -> None:
        partition = self._partitions[key]
        if isinstance(error, (PartitionRemoved, follower_log.FencedLeaderEpoch)):
            self._remove(key)
            self._outdated()
            return
        if not isinstance(error, (CorruptBatch, MisplacedBatch, OSError, EOFError)):
            # a bug costs this partition, not the replicator
            log.error("%r: cannot follow %s", partition, self.name, exc_info=error)
        self._failed(key, partition, error)

    def _failed(self, key: Key, partition: Partition, error: Exception) -> None:
        """Retry later, after what could be appended."""
        self._held.pop(key, None)
        self._row[_ERRORS] += 1
        pause = self._states.back_off(key, _now_ms())
        log.error("%r: cannot follow %s: %s; retrying in %d ms", partition, self.name, error, pause)
        if key in self._untruncated:
            self._states.remove(key)
            self._retries[key] = _now_ms() + pause
            return
        where = self._position(key)
        if where is not None:
            self._states.set_position(key, where)

    def _found(self, sent: OffsetLookup, places: list[ListOffsetsPartition]) -> None:
        """Use the end or start offsets of the leader's logs."""
        ids = {(partition.topic.encode(), key[1]): key for key, partition in self._partitions.items()}
        offsets = {
            ids[(place.topic, place.partition)]: (place.error, place.offset)
            for place in places
            if (place.topic, place.partition) in ids
        }
        for truncation in self._states.offsets_found(sent, offsets, _now_ms()):
            change = follower_log.cut_to if truncation.how == partition_fetch_states.TRUNCATE else follower_log.restart
            at = truncation.offset if truncation.how == partition_fetch_states.TRUNCATE else 0
            self._cut(truncation.key, self._epochs[truncation.key], at, partial(change, offset=truncation.offset))

    def _log_delayed(self) -> None:
        """Log one line for each error of the response."""
        for error, names in self._delayed.items():
            level = logging.INFO if error in partition_fetch_states.TRANSIENT else logging.WARNING
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            log.log(level, "%s: %s for %s%s", self.name, _name(error), ", ".join(names[:_SHOWN]), more)
        self._delayed.clear()


def _needs_append_first(sent: FetchPartition, part: FetchedPartition) -> bool:
    """Whether a response must be used before the next request, whatever its records are."""
    return bool(part.error) or part.diverging is not None or (part.hw <= sent.offset and len(part.records) > 0)


def _name(error: int) -> str:
    return _NAMES.get(error, f"error {error}")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
