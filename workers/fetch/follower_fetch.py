"""A follower's fetches from this broker: they read up to the log end, and report the follower's progress.

Most partitions that a follower fetches are idle. So a fetch session (KIP-227) remembers the sequence of a partition's
slot at which there was nothing more to send: a request, and each try while it waits, then costs one comparison for
each idle partition. A follower that fetches without a session gets a full answer each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.cluster.replication.throttles import PAUSE_MS
from odradek.ipc import replicas, slots
from odradek.ipc.partition_counts import FETCH_REQUESTS
from odradek.ipc.slots import Slot
from odradek.protocol import errors, fetch
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.storage.log import read
from odradek.storage.segment import epochs
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch.fetching import Fetch, SegmentsChanged, ends, failed, storage_failed, tried
from odradek.workers.fetch.follower_progress import Progress

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import SnapshotIdentity
    from odradek.storage.files.openfile import FileSlice
    from odradek.storage.log.partition import Partition
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.fetch.fetch_sessions import FetchSession, Key
    from odradek.workers.fetch.throttling import LeaderThrottle
    from odradek.workers.net.connection import Connection


_NEVER = -1  # not a valid sequence of a slot
_BETWEEN_S = 0.5  # between fetches of an idle follower (replica.fetch.wait.max.ms)
_NO_WORDS = memoryview(bytes(8)).cast("q")


class FollowerPartition:
    """One partition: the follower's request, and the slot's sequence when there was no more to send (`seen`)."""

    __slots__ = ("at", "part", "partition", "seen", "words")

    def __init__(self, part: FetchPartition) -> None:
        self.update(part)
        self.set_partition(None)

    def update(self, part: FetchPartition) -> None:
        """The follower has progressed to the offset of `part`."""
        self.part = part
        self.seen = _NEVER

    def set_partition(self, partition: Partition | None) -> None:
        """Set the partition by the current metadata; None: not on this broker."""
        self.partition = partition
        self.words, self.at = (_NO_WORDS, 0) if partition is None else (partition.slot.words, partition.slot.at)
        self.seen = _NEVER


class FollowerPartitions:
    """The partitions that a follower fetches, in the order in which they are served, and the results found."""

    def __init__(self, services: FetchServices, broker: int, by_id: bool) -> None:
        self._services = services
        self._by_id = by_id
        self._partitions: dict[Key, FollowerPartition] = {}
        self._found: dict[Key, FetchResult] = {}
        self._requested: list[FollowerPartition] = []
        self._slots: list[Slot] | None = None  # the last result of `slots`
        self._metadata: SnapshotIdentity | None = None
        self._refresh_s = services.config["replica.lag.time.max.ms"] / 2000 - _BETWEEN_S
        self._refreshed = time.monotonic()
        self._throttle: LeaderThrottle | None = None
        self.throttled = False  # the throttle withheld records at the last read
        self.broker = broker

    def update(self, parts: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
        """Apply the additions, changes and removals of a request."""
        for part in parts:
            self.update_one(part)
        for key in forgotten:
            self._slots = None
            self._partitions.pop(key, None)
            self._found.pop(key, None)

    def update_one(self, part: FetchPartition) -> FollowerPartition:
        """Apply a request for one partition."""
        key = (part.topic, part.partition)
        followed = self._partitions.get(key)
        if followed is not None:
            followed.update(part)
        else:
            self._partitions[key] = followed = FollowerPartition(part)
            self._slots = None
            followed.set_partition(self._services.partition_of(part.topic, part.partition, self._by_id))
        self._requested.append(followed)
        return followed

    def slots(self) -> list[Slot]:
        """The slots of the partitions."""
        self._follow_metadata()
        if self._slots is None:
            self._slots = [one.partition.slot for one in self._partitions.values() if one.partition is not None]
        return self._slots

    def _follow_metadata(self) -> None:
        services = self._services
        if self._metadata is not services.snapshot.identity:
            self._metadata, self._slots = services.snapshot.identity, None
            self._throttle = services.followers.throttling.get()
            for (topic, index), followed in self._partitions.items():
                partition = services.partition_of(topic, index, self._by_id)
                if partition is not followed.partition or partition is None:
                    followed.set_partition(partition)

    # -- the follower's progress

    def arrived(self) -> None:
        """A request arrived: count it for the partitions it names, and record their progress, periodically that of all
        others too."""
        self._follow_metadata()
        requested, self._requested = self._requested, []
        for followed in requested:
            if followed.partition is not None:
                followed.partition.counts[FETCH_REQUESTS] += 1
        now = time.monotonic()
        if now < self._refreshed + self._refresh_s:
            moved: Iterable[FollowerPartition] = requested
        else:
            self._refreshed, moved = now, self._partitions.values()
        for followed in moved:
            self._record_progress(followed)

    def _record_progress(self, followed: FollowerPartition) -> None:
        part, partition = followed.part, followed.partition
        if partition is None:
            return
        values = partition.slot.read()
        if self._check_offset(partition, values, part) is None:
            leo, epoch = values[slots.F_LEO], values[slots.F_LEADER_EPOCH]
            self._services.followers.record(Progress(partition, self.broker, part.offset, part.log_start, leo, epoch))

    def _check_offset(self, partition: Partition, values: tuple[int, ...], part: FetchPartition) -> FetchResult | None:
        """Why the follower cannot continue from its offset: an error, or where its log and this one diverge."""
        error = refusal(partition, values, part.leader_epoch)
        if error:
            return failed(part, error)
        if replicas.find(partition.slot, self.broker) < 0:  # as Kafka's Partition.followerReplicaOrThrow
            sends_epoch = part.leader_epoch >= 0
            return failed(part, errors.UNKNOWN_LEADER_EPOCH if sends_epoch else errors.NOT_LEADER_OR_FOLLOWER)
        leo = values[slots.F_LEO]
        if part.offset < values[slots.F_LOG_START]:
            return failed(part, errors.OFFSET_OUT_OF_RANGE)
        if 0 <= part.last_epoch != values[slots.F_LATEST_EPOCH] or part.offset > leo:
            return self._diverging(partition, values, part)
        return None

    def _diverging(self, partition: Partition, values: tuple[int, ...], part: FetchPartition) -> FetchResult | None:
        leo = values[slots.F_LEO]
        try:
            cache = self._services.followers.epochs.get(partition, values)
            diverging = epochs.diverges(cache, part.last_epoch, part.offset, leo)
        except epochs.UnknownEpoch:
            return failed(part, errors.OFFSET_OUT_OF_RANGE)
        except Exception as problem:
            storage_failed(partition, values, problem)
            return failed(part, errors.KAFKA_STORAGE_ERROR)
        if diverging is not None:
            return _result(part, values, diverging=diverging)
        return failed(part, errors.OFFSET_OUT_OF_RANGE) if part.offset > leo else None

    # -- records for the follower

    def read(self, most: int) -> tuple[int, bool]:
        """Look at partitions that may have changed: (bytes of records found, whether to answer at once)."""
        self._follow_metadata()
        total, urgent = 0, False
        throttle, self.throttled = self._throttle, False
        for followed in [one for one in self._partitions.values() if one.words[one.at] != one.seen]:
            part = followed.part
            if throttle is not None and throttle.throttles(followed.partition, self.broker):
                result = self._look_at(followed, 0, whole=False)
                self.throttled = self.throttled or followed.words[followed.at] != followed.seen
            else:
                result = self._look_at(followed, min(part.max_bytes, max(most - total, 0)), not total)
            self._found[part.topic, part.partition] = result
            urgent = urgent or result.error != errors.NONE or result.diverging is not None
            total += fetch.size_of(result.payloads)
        return total, urgent

    def _look_at(self, followed: FollowerPartition, limit: int, whole: bool) -> FetchResult:
        part, partition = followed.part, followed.partition
        if partition is None:
            return failed(part, elsewhere(self._services.snapshot, part.topic, part.partition, self._by_id))
        sequence = followed.words[followed.at]  # before the values are read
        try:
            found = tried(partition, self._read, followed, sequence, limit, whole)
        except SegmentsChanged:
            return _result(part, partition.slot.read())
        return failed(part, errors.KAFKA_STORAGE_ERROR) if found is None else found

    def _read(
        self, partition: Partition, values: tuple[int, ...], followed: FollowerPartition, sequence: int, limit: int,
        whole: bool,
    ) -> FetchResult:  # fmt: skip
        part = followed.part
        refused = self._check_offset(partition, values, part)
        if refused is not None:
            return refused
        if part.offset == values[slots.F_LEO]:
            followed.seen = sequence
            return _result(part, values)
        piece = None
        if limit > 0 or whole:
            piece = read.fetch(partition, values, part.offset, values[slots.F_LEO], limit, whole)
        return _result(part, values, () if piece is None else (piece,))

    def has_unsent(self, last_sent: dict[Key, tuple[int, int]]) -> bool:
        """Whether a result has a high watermark or log start other than `last_sent`, which the follower knows."""
        return any(last_sent.get(key) != (result.hw, result.log_start) for key, result in self._found.items())

    def others_are_idle(self, followed: FollowerPartition) -> bool:
        """Whether all partitions other than `followed` are idle, and nothing is throttled."""
        if self._found or self._throttle is not None:
            return False
        return all(one.words[one.at] == one.seen for one in self._partitions.values() if one is not followed)

    def move_to_end(self, key: Key) -> FollowerPartition:
        """A partition's records are sent: move it to the end of the order."""
        followed = self._partitions[key] = self._partitions.pop(key)
        return followed

    def take_results(self) -> list[FetchResult]:
        """The results found since the last call."""
        found, self._found = self._found, {}
        for key, result in found.items():
            if result.payloads and key in self._partitions:
                followed = self.move_to_end(key)
                if self._throttle is not None:
                    self._throttle.sent(followed.partition, result.payloads)
        return list(found.values())


def _result(
    part: FetchPartition, values: tuple[int, ...], payloads: tuple[FileSlice, ...] = (),
    diverging: tuple[int, int] | None = None,
) -> FetchResult:  # fmt: skip
    offsets = (*ends(values), values[slots.F_LOG_START])
    return FetchResult(part.topic, part.partition, errors.NONE, *offsets, payloads, None, diverging)


class FollowerFetch(Fetch):
    """A follower's request, waiting or answered."""

    __slots__ = ()
    waits_for = slots.GROWTH

    def __init__(
        self, services: FetchServices, connection: Connection, version: int, correlation: int, request: FetchRequest,
        session: FetchSession | None,
    ) -> None:  # fmt: skip
        super().__init__(services, connection, version, correlation, request, session)
        self._follower_partitions = self._join()

    def _join(self) -> FollowerPartitions:
        """The follower's partitions, with this request applied."""
        session, request = self.session, self.request
        partitions = None if session is None else session.follower_partitions
        if partitions is None or partitions.broker != request.replica:
            partitions = FollowerPartitions(self.services, request.replica, self.version >= fetch.TOPIC_IDS)
            partitions.update(self.parts, ())
        else:
            partitions.update(request.parts, request.forgotten)
        if session is not None:
            session.follower_partitions = partitions
        return partitions

    def start(self) -> None:
        self._follower_partitions.arrived()
        super().start()

    def _wait_ms(self) -> int:
        """No ring announces that a throttle allows more: the follower has to fetch again."""
        longest = super()._wait_ms()
        return min(longest, PAUSE_MS) if self._follower_partitions.throttled else longest

    def find_slots(self) -> list[Slot]:
        return self._follower_partitions.slots()

    def _read(self) -> tuple[list[FetchResult], int, bool]:
        """As `Fetch._read`; results are kept until the answer."""
        partitions, session = self._follower_partitions, self.session
        size, urgent = partitions.read(min(self.request.max_bytes, self.services.fetch_max_bytes))
        if session is not None and partitions.has_unsent(session.last_sent):
            self.services.followers.schedule_progress(self)
        return [], size, urgent

    def _answer(self, results: list[FetchResult]) -> None:
        super()._answer(self._follower_partitions.take_results())

    def _counts_of(self, result: FetchResult) -> memoryview:
        return self.services.counts.replication

    def send_progress(self) -> None:
        """Stop waiting: send the high watermark or log start that the follower does not know."""
        self.services.purgatory.answer_now(self)
