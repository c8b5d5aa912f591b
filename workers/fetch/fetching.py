"""Answers one Fetch request of any kind: any version, any number of partitions, with or without a session.

A request that repeats the last one and has a plain answer takes a fast path: workers.fetch.repeated_fetch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.ipc import slots
from odradek.ipc.partition_counts import BYTES_OUT, FAILED_FETCH_REQUESTS, FETCH_REQUESTS
from odradek.ipc.slots import Slot
from odradek.protocol import errors, fetch
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.storage.files import disks
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import read, transactions
from odradek.storage.segment import epochs
from odradek.workers.dispatch.api import complete, pieces
from odradek.workers.dispatch.authorization import READ, TOPIC
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch import leader_epochs, nearest_replica
from odradek.workers.fetch.fetch_sessions import INITIAL

if TYPE_CHECKING:
    from odradek.protocol.fetch import Payload
    from odradek.storage.files.openfile import FileSlice
    from odradek.storage.log.partition import Partition
    from odradek.workers.fetch.downconvert import Budget
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.fetch.fetch_sessions import FetchSession
    from odradek.workers.net.connection import Connection

log = logging.getLogger(__name__)

CONVERTED = 4  # lower versions know only message formats 0 and 1
ZSTD = 10  # the first version that may carry zstd
_NO_STATE = (-1, -1, -1)
_UNKNOWN = (errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_ID, errors.TOPIC_AUTHORIZATION_FAILED)
"""Errors of partitions that the metadata does not have, or that the client may not read: as in Kafka, the request still
waits for its other partitions, or a client that also asks for a deleted topic would ask without a pause."""
_TRIES = 3

Found = TypeVar("Found")


class SegmentsChanged(Exception):
    """The files of a log are replaced faster than they are read; a later attempt may succeed."""


class Fetch:
    """One request being answered; delayed if it finds too little (workers.dispatch.purgatory.DelayedOperation)."""

    __slots__ = (
        "_budget",
        "_counted",
        "_follower_partitions",
        "_rack",
        "_readable",
        "_results",
        "_unknown",
        "connection",
        "correlation",
        "deadline",
        "finished",
        "parts",
        "queued",
        "request",
        "services",
        "session",
        "slots",
        "version",
    )  # fmt: skip

    waits_for = slots.ANYTHING

    def __init__(
        self, services: FetchServices, connection: Connection, version: int, correlation: int, request: FetchRequest,
        session: FetchSession | None,
    ) -> None:  # fmt: skip
        self.services = services
        self.connection = connection
        self.version = version
        self.correlation = correlation
        self.request = request
        self.session = session
        self.parts = _once(request.parts) if session is None else list(session.parts.values())
        self.deadline = 0.0
        self.finished = self.queued = False
        self.slots: list[Slot] = []
        self._results: list[FetchResult] = []
        self._counted = False  # its requests are in the counts; it may be read several times
        self._readable = services.authorization.readable(connection)
        self._unknown = 0  # partitions that were not in the metadata when the request was delayed
        self._budget: Budget  # set where records are converted
        self._rack = request.rack.decode("utf-8", "replace") if request.rack and services.by_rack else ""

    def start(self) -> None:
        """Answer now if there is enough data or no time to wait, else wait in the purgatory."""
        self._decide(*self._read())

    def begin(self) -> None:
        """`start` in steps, for many partitions."""
        self.services.begin(self._starting())

    def _starting(self) -> Iterator[None]:
        try:
            found = yield from (self._reading() if self.version >= CONVERTED else self._converting())
            if not self.connection.closed:  # else it would be delayed without a client
                self._decide(*found)
        except Exception as fault:
            log.exception("%r: Fetch failed", self.connection)
            self.fail(fault)

    def _decide(self, results: list[FetchResult], size: int, failed: bool) -> None:
        request = self.request
        self._counted = True
        self._unknown = _unknown(results)
        nothing = self._unknown == len(self.parts)
        if failed or size >= request.min_bytes or request.max_wait_ms <= 0 or nothing or self.services.draining:
            self._answer(results)
            return
        self.deadline = time.monotonic() + self._wait_ms() / 1000
        self.slots = self.find_slots()
        self.connection.delayed = self
        self.services.purgatory.watch(self)

    def _wait_ms(self) -> int:
        """How long to wait for records, in ms."""
        return self.request.max_wait_ms

    def find_slots(self) -> list[Slot]:
        """The slots of its partitions by the current metadata (workers.dispatch.purgatory.DelayedOperation).

        ACLs change with the metadata: a right that is withdrawn ends the wait.
        """
        self._readable = self.services.authorization.readable(self.connection)
        found: dict[Slot, None] = {}
        for part in self.parts:
            partition = self.services.partition_of(part.topic, part.partition, self.version >= fetch.TOPIC_IDS)
            if partition is not None:
                found[partition.slot] = None
        return list(found)

    def try_complete(self) -> bool:
        self._results, size, failed = self._read()
        return failed or size >= self.request.min_bytes or _unknown(self._results) > self._unknown

    def answer(self) -> None:
        self._answer(self._results)

    def expire(self) -> None:
        self._answer(self._read()[0])

    def fail(self, fault: Exception) -> None:
        self.services.drop(self.connection, "closed after an internal error")

    def _read(self) -> tuple[list[FetchResult], int, bool]:
        """The results for all parts, their bytes, and whether any of them is a reason not to wait for more.

        A reason is an error of a known partition, another broker to read from, or more readable records than the result
        has: the next ones are in another segment, and are available to the next request (Kafka's DelayedFetch, case F).
        """
        if self.version < CONVERTED:
            return complete(self._converting())
        results: list[FetchResult] = []
        return results, *self._read_some(self.parts, results, 0)

    def _reading(self) -> Generator[None, None, tuple[list[FetchResult], int, bool]]:
        """`_read` in steps."""
        results: list[FetchResult] = []
        total, failed = 0, False
        for piece in pieces(self.parts):
            size, bad = self._read_some(piece, results, total)
            total, failed = total + size, failed or bad
            yield
        return results, total, failed

    def _read_some(self, parts: Sequence[FetchPartition], results: list[FetchResult], before: int) -> tuple[int, bool]:
        """Add the results of some parts to `before` bytes; returns their bytes, and whether any ends the wait."""
        left = min(self.request.max_bytes, self.services.fetch_max_bytes) - before
        total, failed = 0, False
        for part in parts:
            result, size, more = self._part(part, min(part.max_bytes, max(left, 0)), not (before or total))
            results.append(result)
            failed = failed or more or _is_bad(result) or result.preferred >= 0
            total += size
            left -= size
        return total, failed

    def _converting(self) -> Generator[None, None, tuple[list[FetchResult], int, bool]]:
        """`_reading` for clients that need down-conversion, which is limited for each request."""
        from odradek.workers.fetch.downconvert import Budget

        self.services.conversions += 1
        self._budget = budget = Budget(self.services.conversions)
        left = min(self.request.max_bytes, self.services.fetch_max_bytes)
        found: dict[int, FetchResult] = {}
        total, failed = 0, False
        for number in budget.order(len(self.parts)):
            part = self.parts[number]
            limit = budget.limit(min(part.max_bytes, max(left, 0)))
            found[number], size, more = self._part(part, limit, not total)
            failed = failed or more or _is_bad(found[number])
            total += size
            left -= size
            yield
        # The next request gets at once what the budget left out: there is no point in waiting for more.
        return [found[number] for number in range(len(self.parts))], total, failed or (budget.spent and total > 0)

    def _may_read(self, part: FetchPartition, partition: Partition | None, readable: Mapping[str, bool]) -> bool:
        """Whether the client may read the topic; an unknown id has another error."""
        name: str | None
        if partition is not None:
            name = partition.topic
        elif self.version >= fetch.TOPIC_IDS:
            name = self.services.snapshot.by_id(part.topic)
        else:
            name = part.topic.decode("utf-8", "replace")
        if name is None or readable[name]:
            return True
        return self.services.authorization.of_connection(self.connection).allows(1, READ, TOPIC, name)  # logs it

    def _part(self, part: FetchPartition, limit: int, whole: bool) -> tuple[FetchResult, int, bool]:
        """The result, the bytes of its records, and whether there are more readable records."""
        by_id = self.version >= fetch.TOPIC_IDS
        partition = self.services.partition_of(part.topic, part.partition, by_id)
        if self._readable is not None and not self._may_read(part, partition, self._readable):
            return failed(part, errors.TOPIC_AUTHORIZATION_FAILED), 0, False
        if partition is None:
            error = elsewhere(self.services.snapshot, part.topic, part.partition, by_id)
            if not self._counted and error == errors.NOT_LEADER_OR_FOLLOWER:  # others do not reach Kafka's log
                self.services.counts.elsewhere[FETCH_REQUESTS] += 1
            return failed(part, error), 0, False
        if not self._counted:
            partition.counts[FETCH_REQUESTS] += 1
        try:
            found = tried(partition, self._look_at, part, limit, whole)
        except SegmentsChanged:
            aborted: list[tuple[int, int]] | None = [] if self.request.isolation == fetch.READ_COMMITTED else None
            return _result(part, partition.slot.read(), [], aborted), 0, False
        return found or (failed(part, errors.KAFKA_STORAGE_ERROR), 0, False)

    def _look_at(
        self, partition: Partition, values: tuple[int, ...], part: FetchPartition, limit: int, whole: bool
    ) -> tuple[FetchResult, int, bool]:
        if self.version < ZSTD and (error := _too_old(self.version, partition)):
            return failed(part, error), 0, False
        refused = _refused(partition, values, part, self.version >= nearest_replica.FIRST)
        if refused is not None:
            return refused, 0, False
        if self._rack and (preferred := self._nearest(partition, values, part.offset)) >= 0:
            return _sent_to(preferred, part, values), 0, False
        return self._slice(partition, values, part, limit, whole)

    def _nearest(self, partition: Partition, values: tuple[int, ...], offset: int) -> int:
        """The follower to read from instead, or nearest_replica.NOBODY."""
        if values[slots.F_STATE] != slots.LEADER:
            return nearest_replica.NOBODY
        services, listener = self.services, self.connection.listener
        return nearest_replica.replica(
            services.snapshot, services.config["broker.id"], partition.slot, self._rack, listener, offset
        )

    def _slice(
        self, partition: Partition, values: tuple[int, ...], part: FetchPartition, limit: int, whole: bool
    ) -> tuple[FetchResult, int, bool]:
        hw, stable = ends(values)
        committed = self.request.isolation == fetch.READ_COMMITTED
        upto = stable if committed else hw
        piece = None
        if limit > 0 or whole:
            piece = read.fetch(partition, values, part.offset, upto, limit, whole)
        payloads: list[Payload | bytes] = [] if piece is None else [piece]
        size = 0 if piece is None else piece.size
        if piece is not None and self.version < CONVERTED:
            self._budget.take(piece, upto)
            data = self._converted(partition, piece, part)
            if data is None:
                return failed(part, errors.UNSUPPORTED_COMPRESSION_TYPE), 0, False
            payloads, size = [data], len(data)
        aborted = self._aborted(partition, values, part.offset, piece) if committed else None
        return _result(part, values, payloads, aborted), size, piece is not None and piece.following < upto

    def _aborted(
        self, partition: Partition, values: tuple[int, ...], offset: int, piece: FileSlice | None
    ) -> list[tuple[int, int]]:
        """The aborted transactions that a read_committed consumer must filter out of these records."""
        if piece is None or not values[slots.F_ABORTED]:
            return []
        return transactions.aborted_between(partition, values, offset, piece.following)

    def _converted(self, partition: Partition, piece: FileSlice, part: FetchPartition) -> bytes | None:
        from odradek.workers.fetch import downconvert

        return downconvert.for_version(partition, piece, part.offset, self.version, part.max_bytes, self._budget)

    def _answer(self, results: list[FetchResult]) -> None:
        if self.services.quotas is not None and self.request.replica < 0:
            size = fetch.size_of(fetch.response(self.version, self.correlation, _special(results)))
            throttle_ms = self.services.quotas.fetched(self.connection, size)
            if throttle_ms:
                self._answer_throttled(throttle_ms)
                return
        session = self.session
        session_id = 0
        if session is not None:
            if session.epoch != 0:
                results = session.changed_partitions(results)
            else:
                session.changed_partitions(results)
            session_id = session.id
            session.advance()
        for result in results:
            if result.payloads:
                self._counts_of(result)[BYTES_OUT] += fetch.size_of(result.payloads)
        frame = fetch.response(self.version, self.correlation, results, errors.NONE, session_id)
        self.services.pager.answer(self.connection, frame)

    def _counts_of(self, result: FetchResult) -> memoryview:
        """The row that counts the records of a result (ipc.partition_counts)."""
        partition = self.services.partition_of(result.topic, result.partition, self.version >= fetch.TOPIC_IDS)
        return self.services.counts.elsewhere if partition is None else partition.counts

    def _answer_throttled(self, throttle_ms: int) -> None:
        """Answer without records, as Kafka does for a client that exceeds its quota; a new session is not begun."""
        session, session_id = self.session, 0
        if session is not None and session.epoch == INITIAL:
            self.services.sessions.remove(session)
        elif session is not None:
            session_id = session.id
            session.advance()
        frame = fetch.response(self.version, self.correlation, [], errors.NONE, session_id, throttle_ms)
        self.services.sender.answer_pieces(self.connection, frame)


def _special(results: list[FetchResult]) -> list[FetchResult]:
    """The results that make up nearly all bytes of an answer."""
    return [result for result in results if result.payloads or result.error]


def _too_old(version: int, partition: Partition) -> int:
    """The error for a client that does not know the format in which records are stored, or 0. It precedes all other
    errors, as in Kafka.
    """
    if partition.config.compression_type == "zstd":
        return errors.UNSUPPORTED_COMPRESSION_TYPE
    if version < CONVERTED and not partition.config.message_downconversion_enable:
        return errors.UNSUPPORTED_VERSION
    return errors.NONE


def _once(parts: list[FetchPartition]) -> list[FetchPartition]:
    """Each partition once, as last asked for."""
    return parts if len(parts) < 2 else list({(part.topic, part.partition): part for part in parts}.values())


def _result(
    part: FetchPartition, values: tuple[int, ...], payloads: list[Payload | bytes],
    aborted: list[tuple[int, int]] | None,
) -> FetchResult:  # fmt: skip
    """The result of a partition that was read; `aborted` is None unless the client is read_committed."""
    log_start = values[slots.F_LOG_START]
    return FetchResult(part.topic, part.partition, errors.NONE, *ends(values), log_start, payloads, aborted)


def _is_bad(result: FetchResult) -> bool:
    return result.error != errors.NONE and result.error not in _UNKNOWN


def _unknown(results: list[FetchResult]) -> int:
    """The number of partitions that are not in the metadata."""
    return sum(result.error in _UNKNOWN for result in results)


def failed(part: FetchPartition, error: int) -> FetchResult:
    """The result of a partition that cannot be read."""
    return FetchResult(part.topic, part.partition, error, *_NO_STATE)


def tried(partition: Partition, read_: Callable[..., Found], *arguments: Any) -> Found | None:
    """What `read_(partition, values, *arguments)` returns; None if reading fails; other partitions continue.

    Raises SegmentsChanged if compaction replaces segments faster than they are read: the log is intact.
    """
    problem: Exception
    for _ in range(_TRIES):
        values = partition.slot.read()
        try:
            return read_(partition, values, *arguments)
        except FileNotFoundError as gone:
            partition.close_files()  # retention was faster: try again
            problem = gone
        except Exception as fault:
            problem = fault
            break
    if isinstance(problem, FileNotFoundError) and _is_changing(partition, values):
        raise SegmentsChanged
    storage_failed(partition, values, problem)
    return None


def _is_changing(partition: Partition, values: tuple[int, ...]) -> bool:
    """Whether the files changed since `values` were read, or a process is about to change them."""
    return bool(partition.slot.dirty) or partition.slot.read()[slots.F_GENERATION] != values[slots.F_GENERATION]


def storage_failed(partition: Partition, values: tuple[int, ...], problem: Exception) -> None:
    """Log a failed read, which affects this partition only; a broken disk takes its log directory offline."""
    expected = isinstance(problem, OSError | EOFError | CheckpointError)
    trace = None if expected else problem
    log.warning("%r: read failed: %s", partition, problem or type(problem).__name__, exc_info=trace)
    if not isinstance(problem, OSError):
        partition.counts[FAILED_FETCH_REQUESTS] += 1
    elif disks.is_broken(problem):
        partition.owner.disk_failed(values[slots.F_LOG_DIR])


def ends(values: tuple[int, ...]) -> tuple[int, int]:
    """High watermark and last stable offset."""
    return values[slots.F_HW], slots.last_stable(values)


def _sent_to(broker: int, part: FetchPartition, values: tuple[int, ...]) -> FetchResult:
    known = (*ends(values), values[slots.F_LOG_START])
    return FetchResult(part.topic, part.partition, errors.NONE, *known, preferred=broker)


def _refused(
    partition: Partition, values: tuple[int, ...], part: FetchPartition, followers: bool
) -> FetchResult | None:
    """The result if the partition cannot be read at the requested offset; None if it can."""
    error = refusal(partition, values, part.leader_epoch, followers)
    if error:
        return failed(part, error)
    if part.offset < values[slots.F_LOG_START]:
        return failed(part, errors.OFFSET_OUT_OF_RANGE)
    parted = _parted(partition, values, part) if part.last_epoch >= 0 else None
    if parted is None and part.offset > values[slots.F_LEO]:
        return failed(part, errors.OFFSET_OUT_OF_RANGE)
    return parted


def _parted(partition: Partition, values: tuple[int, ...], part: FetchPartition) -> FetchResult | None:
    """Where this log and the client's, whose last epoch is `last_epoch`, diverge (KIP-595); None: they do not."""
    try:
        diverging = epochs.diverges(
            leader_epochs.of(partition, values), part.last_epoch, part.offset, values[slots.F_LEO]
        )
    except epochs.UnknownEpoch:
        return failed(part, errors.OFFSET_OUT_OF_RANGE)
    except Exception as problem:
        storage_failed(partition, values, problem)
        return failed(part, errors.KAFKA_STORAGE_ERROR)
    if diverging is None:
        return None
    known = (*ends(values), values[slots.F_LOG_START])
    return FetchResult(part.topic, part.partition, errors.NONE, *known, diverging=diverging)
