"""Produce (key 0), versions 0 to 13: append record batches to partitions.

A batch of magic 2 for a topic with plain settings is stored as it came, after a check of its header, its CRC and the
shape of its records (workers.produce.record_check; `odradek.producers.trusted` skips this one). Everything else
(magic 0 and 1, compression.type other than producer, compacted topics, LogAppendTime, timestamp bounds, records that
contradict the header) goes through `protocol.records.normalise`. A whole run of requests becomes one append per
partition (workers.produce.batching).

Versions below 3 carry magic 0 and 1, from 3 on only magic 2; v7 and later may carry zstd (KIP-110); v13 names topics
by id (KIP-516). Version 0, in which acks=N above 1 had a meaning in 0.8, accepts it as acks=all; later versions refuse
it with INVALID_REQUIRED_ACKS. Batches with acks=all wait for followers, if there are any (workers.produce.acks_all),
as long as the request's timeout allows. Only clients named `__admin_client` may write to internal topics; others get
INVALID_TOPIC_EXCEPTION. A transactional batch that would open a transaction in its partition waits until the
coordinator confirms that the partition is part of it (KIP-890, workers.produce.verification). A transactional batch in
a request without a transactional id fails the whole request with TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

All requests of a client begin with the same bytes (client id, acks, topic, partition). So the worker remembers these
prefixes decoded (`ProduceTargets`), and a request with the same target as the last one costs one comparison.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from odradek.cluster.rules import topicnames
from odradek.protocol import errors, produce
from odradek.protocol.batch import (
    COMPRESSION,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from odradek.protocol.produce import PartResult
from odradek.protocol.wire import uvarint
from odradek.storage.log.transactions import NOT_ASKED
from odradek.workers.dispatch.api import SLICE_S, Api
from odradek.workers.fetch import partition_check
from odradek.workers.produce.batching import Pending

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Mark
    from odradek.storage.log.partition import Partition
    from odradek.workers.net.connection import Connection
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)

_I32 = struct.Struct(">i")
_ZSTD = 4
_ADMIN = struct.Struct(">h14s").pack(14, b"__admin_client")
"""The client id, encoded as in the request header, with which Kafka lets clients write to internal topics."""
_LONGEST_PREFIX = 1024  # twice what clients send; names may be 32 KiB long each
_REMEMBERED = 16 << 20  # bytes of prefixes that a worker remembers; clients with the same client id share them
_PART = 500  # bytes of a request's part without its records, roughly
UNNAMED = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TARGET = 400  # bytes remembered in addition to each prefix


class ProduceTarget:
    """The decoded meaning of a prefix: where records go and how to answer; valid for the metadata of `metadata`."""

    __slots__ = (
        "acks", "acks_all", "follower", "index", "metadata", "partition", "prefix", "reply", "size", "timeout_ms",
        "topic", "transactional_id", "version",
    )  # fmt: skip

    def __init__(
        self, partition: Partition | None, topic: bytes, index: int, acks: int, timeout_ms: int, version: int,
        transactional_id: bytes | None,
    ) -> None:  # fmt: skip
        self.partition: Any = partition  # None only for a part that is refused
        self.topic = topic
        self.index = index
        self.acks = acks
        self.acks_all = acks not in (0, 1)
        self.timeout_ms = timeout_ms  # how long to wait for followers
        self.version = version
        self.transactional_id = transactional_id
        self.prefix = b""
        self.size = 0
        self.follower: ProduceTarget | None = None  # the target that a client used after this one
        self.metadata: Mark | None = None
        self.reply: Callable[[Pending], bytes] | None = None  # not for acks=0, nor for parts of a larger request

    def remember(self, prefix: bytes, metadata: Mark) -> None:
        """Requests that begin with `prefix` have this target."""
        self.prefix, self.size, self.metadata = prefix, len(prefix), metadata
        self.reply = produce.single_reply(self.version, self.topic, self.index) if self.acks else None


class ProduceTargets:
    """The prefixes that a worker remembers until the metadata changes."""

    def __init__(self) -> None:
        self._metadata: Mark | None = None
        self._known: dict[tuple[int, bytes], ProduceTarget] = {}
        self._bytes = 0

    def get(self, version: int, prefix: bytes, metadata: Mark) -> ProduceTarget | None:
        """The target of requests of `version` that begin with `prefix`."""
        return self._known.get((version, prefix)) if metadata is self._metadata else None

    def keep(self, target: ProduceTarget, metadata: Mark) -> None:
        """Remember `target`; the cache is cleared when it becomes too large, and when the metadata changes."""
        if metadata is not self._metadata or self._bytes > _REMEMBERED:
            self._metadata, self._bytes = metadata, 0
            self._known.clear()
        self._known[target.version, target.prefix] = target
        self._bytes += target.size + _TARGET


class Several:
    """A request for any number of partitions, answered when all are decided. `taken`: all of them are in `parts`."""

    __slots__ = ("_open", "acks", "correlation", "parts", "taken", "version")

    reply = None

    def __init__(self, version: int, correlation: int, acks: int) -> None:
        self.version = version
        self.correlation = correlation
        self.acks = acks
        self.parts: list[Pending] = []
        self._open: list[Pending] = []
        self.taken = False

    def add(self, part: Pending) -> None:
        """Add one of its partitions."""
        self.parts.append(part)
        if not part.done:
            self._open.append(part)

    @property
    def size(self) -> int:
        """Bytes of waiting records, plus the approximate overhead of all parts."""
        return _PART * len(self.parts) + sum(part.size for part in self._open)

    @property
    def done(self) -> bool:
        self._open = [part for part in self._open if not part.done]
        return self.taken and not self._open

    def answer(self) -> bytes:
        """The response frame."""
        return produce.response(self.version, self.correlation, [_result(part) for part in self.parts])


def _result(part: Pending) -> PartResult:
    return PartResult(
        part.target.topic, part.target.index, part.error, part.base_offset, part.append_time, part.log_start,
        part.message, part.record_errors,
    )  # fmt: skip


def answer(pending: Pending | Several) -> bytes | None:
    """The response frame of a decided request, None with acks=0."""
    if isinstance(pending, Several):
        return pending.answer() if pending.acks else None
    if not pending.target.acks:
        return None
    return produce.response(pending.target.version, pending.correlation, [_result(pending)])


def refused_silently(pending: Pending | Several) -> bool:
    """Whether a request with acks=0 failed: Kafka then closes the client's connection."""
    if isinstance(pending, Several):
        return not pending.acks and any(part.error for part in pending.parts)
    return not pending.target.acks and bool(pending.error)


def raw(
    worker: Worker, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int, start: int,
    end: int,
) -> None:  # fmt: skip
    """Take the request whose header begins at `head` (its client id) and whose body is buffer[start:end]."""
    target = connection.target
    if (
        target is None
        or buffer.obj.find(target.prefix, head, head + target.size) != head  # type: ignore[attr-defined]  # no slice
        or target.version != version
        or target.metadata is not worker.snapshot.mark
    ):
        target = _known_target(worker, connection, version, buffer, head)
    if target is not None:
        at = head + target.size
        if version < produce.FLEXIBLE:
            (size,) = _I32.unpack_from(buffer, at)
            at += 4
            tail = 0
        else:
            low, high = buffer[at], buffer[at + 1]
            if low > 127 > high:  # two bytes: nearly all batches
                size = (low & 127 | high << 7) - 1
                at += 2
            else:
                size, at = uvarint(buffer, at)
                size -= 1
            tail = 3
        if at + size + tail == end and size > 0:
            connection.order.append(_batch(worker, connection, correlation, target, buffer, at, size))
            return
    _parse(worker, connection, version, correlation, buffer, head, start, end)


def _known_target(
    worker: Worker, connection: Connection, version: int, buffer: memoryview, head: int
) -> ProduceTarget | None:
    """Another target whose prefix this request begins with, as remembered from any connection."""
    last = connection.target
    if last is None:
        return None
    target = worker.targets.get(version, bytes(buffer[head : head + last.size]), worker.snapshot.mark)
    if target is None and last.follower is not None:  # another length: the target that came after this one before
        size = last.follower.size
        target = worker.targets.get(version, bytes(buffer[head : head + size]), worker.snapshot.mark)
    if target is not None:
        connection.target = target
    return target


def _parse(
    worker: Worker, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int, start: int,
    end: int,
) -> None:  # fmt: skip
    """The slow path, which remembers the prefix of a request with one partition."""
    request = produce.parse(buffer, start, end, version)
    if len(request.parts) == 1:
        part = request.parts[0]
        partition = _place(worker, part, request.acks, version, _is_admin(buffer, head))
        if partition is not None and part.size > 0:
            target = _target(partition, part, request, version)
            target.remember(bytes(buffer[head : request.prefix_end]), worker.snapshot.mark)
            _remember(worker, connection, target)
            batch = _batch(worker, connection, correlation, target, buffer, part.start, part.size)
            connection.order.append(batch)
            return
    _take_several(worker, connection, request, version, correlation, buffer, head)


def _target(
    partition: Partition | None, part: produce.Part, request: produce.ProduceRequest, version: int
) -> ProduceTarget:
    return ProduceTarget(
        partition, part.topic, part.partition, request.acks, request.timeout_ms, version, request.transactional_id
    )


def _remember(worker: Worker, connection: Connection, target: ProduceTarget) -> None:
    last, connection.target = connection.target, None
    if target.size <= _LONGEST_PREFIX:
        worker.targets.keep(target, worker.snapshot.mark)
        connection.target = target
        if last is not None:
            last.follower = target


def _place(worker: Worker, part: produce.Part, acks: int, version: int, admin: bool) -> Partition | None:
    """The partition of a part; None when the part must be refused.

    The remembered prefix contains the client id, so a permission holds for every request with that prefix.
    """
    if not _acks_allowed(acks, version):
        return None
    partition = worker.partition_of(part.topic, part.partition, version >= produce.TOPIC_IDS)
    if partition is not None and partition.topic in topicnames.INTERNAL and not admin:
        return None
    return partition


def _is_admin(buffer: memoryview, head: int) -> bool:
    return buffer[head : head + len(_ADMIN)] == _ADMIN


def _acks_allowed(acks: int, version: int) -> bool:
    return -1 <= acks <= 1 or (version == 0 and acks > 1)


def _batch(
    worker: Worker,
    connection: Connection,
    correlation: int,
    target: ProduceTarget,
    buffer: memoryview,
    at: int,
    size: int,
) -> Pending:
    """The batch in buffer[at:at+size], checked and queued for the round's append, or decided if it is refused.

    A single batch with a valid header, CRC and records is stored as it came. For a trusted producer the header's count
    is accepted up to one record per byte. A batch that claims more, and everything else, takes the slow path.
    """
    partition, config = target.partition, target.partition.config
    view = buffer[at : at + size]
    batch = Pending(view, connection, correlation, target)
    if size >= HEADER_SIZE and config.plain and target.version >= 3:
        base, length, _, magic, crc, attributes, delta, first, timestamp, producer_id, epoch, sequence, count = (
            HEADER.unpack_from(buffer, at)
        )
        if (
            magic == 2
            and length + LOG_OVERHEAD == size <= config.largest_batch
            and count == delta + 1
            and 0 < count <= size
            and not base
            and (not attributes or _attributes_sound(worker, batch, attributes, producer_id))
            and (producer_id < 0 or (sequence >= 0 and epoch >= 0))
            and crc32c(view[CRC_START:]) == crc
            and (
                config.producers_trusted
                or worker.record_check.is_sound(buffer, at, size, attributes, count, first, timestamp)
            )
        ):
            batch.count = count
            batch.max_timestamp = timestamp
            batch.producer_id = producer_id
            batch.epoch = epoch
            batch.sequence = sequence
            if attributes & TRANSACTIONAL:
                _add_transactional(worker, batch)
            else:
                worker.round.add(partition, batch)
            return batch
    _open(worker, batch)
    return batch


def _open(worker: Worker, batch: Pending) -> None:
    """The slow path: check and convert record by record."""
    from odradek.workers.produce import convert

    worker.loop.spend(batch.connection)
    partition = batch.target.partition
    if batch.target.transactional_id is None and _is_transactional(batch.view, 0, batch.size):
        batch.refuse(UNNAMED)  # before any other error
        worker.round.finish((batch,))
    elif not convert.prepare(batch, partition, batch.target.version):
        worker.round.finish((batch,))
    elif batch.transactional:
        _add_transactional(worker, batch)
    else:
        worker.round.add(partition, batch)


def _add_transactional(worker: Worker, batch: Pending) -> None:
    """The append has the batch verified if it opens a transaction; that is impossible without a transactional id."""
    if batch.target.transactional_id is None:
        batch.refuse(UNNAMED)
        worker.round.finish((batch,))
        return
    if worker.verification.enabled:
        batch.guard = NOT_ASKED
    worker.round.add(batch.target.partition, batch)


def _attributes_sound(worker: Worker, pending: Pending, attributes: int, producer_id: int) -> bool:
    """Whether a batch with these attributes can be stored as it came; records that it is transactional or costly."""
    if attributes & (CONTROL | TIMESTAMP_TYPE):
        return False
    compression = attributes & COMPRESSION
    if compression:
        worker.loop.spend(pending.connection)
    if compression > _ZSTD or (compression == _ZSTD and pending.target.version < 7):
        return False
    if attributes & TRANSACTIONAL:
        if producer_id < 0:
            return False
        pending.transactional = True
    return True


def _take_several(
    worker: Worker, connection: Connection, request: produce.ProduceRequest, version: int, correlation: int,
    buffer: memoryview, head: int,
) -> None:  # fmt: skip
    """Take a request for several partitions, or with a part to refuse."""
    taking = _Taking(worker, connection, request, Several(version, correlation, request.acks), buffer, head)
    connection.order.append(taking.several)
    if not taking.run():
        taking.keep()
        connection.waiting = True
        worker.again(taking.go_on, connection)


class _Taking:
    """Takes the parts of one request, one time slice at a go: there may be many, and records to decode."""

    def __init__(
        self, worker: Worker, connection: Connection, request: produce.ProduceRequest, several: Several,
        buffer: memoryview, head: int,
    ) -> None:  # fmt: skip
        self.several = several
        self._worker = worker
        self._connection = connection
        self._request = request
        self._buffer = buffer
        self._moved = 0  # how far the parts moved towards the start, in bytes, since the request was parsed
        self._admin = _is_admin(buffer, head)
        self._unnamed = _is_unnamed(buffer, request)
        self._left = deque(_once(request.parts))

    def keep(self) -> None:
        """Keep the remaining parts beyond this round."""
        start = min(part.start for part in self._left)
        end = max(part.start + max(part.size, 0) for part in self._left)
        self._buffer, at, _ = self._worker.loop.kept(self._buffer, start, end)
        self._moved = start - at

    def go_on(self) -> bool:
        """`run` in a later turn, unless the client is gone."""
        return self._connection.closing or self.run()

    def run(self) -> bool:
        """Take parts for one slice; returns whether those were all."""
        until = time.monotonic() + SLICE_S
        while self._left:
            self.several.add(self._take(self._left.popleft()))
            if self._left and time.monotonic() >= until:
                return False
        self.several.taken = True
        self._worker.round.settle(self._connection)
        return True

    def _take(self, part: produce.Part) -> Pending:
        worker, connection, request, several = self._worker, self._connection, self._request, self.several
        version, correlation = several.version, several.correlation
        partition = None if self._unnamed else _place(worker, part, request.acks, version, self._admin)
        target, start = _target(partition, part, request, version), part.start - self._moved
        if partition is not None:
            return _batch(worker, connection, correlation, target, self._buffer, start, max(part.size, 0))
        batch = Pending(self._buffer[start:start], connection, correlation, target)
        batch.refuse(UNNAMED if self._unnamed else _why(worker, batch, request, version, self._admin))
        worker.round.finish((batch,))
        return batch


def _once(parts: list[produce.Part]) -> list[produce.Part]:
    """Each partition once: of several parts for one partition, Kafka stores and answers the last."""
    return list({(part.topic, part.partition): part for part in parts}.values())


def _is_unnamed(buffer: memoryview, request: produce.ProduceRequest) -> bool:
    """Whether it has whole transactional batches but no transactional id: Kafka refuses the whole request."""
    if request.transactional_id is not None:
        return False
    return any(_is_transactional(buffer, part.start, part.size) for part in request.parts)


def _is_transactional(buffer: memoryview, at: int, size: int) -> bool:
    """Whether the first batch in these bytes is whole and transactional."""
    if size < HEADER_SIZE:
        return False
    header = HEADER.unpack_from(buffer, at)
    return bool(header[3] == 2 and header[5] & TRANSACTIONAL and header[1] + LOG_OVERHEAD <= size)


def _why(worker: Worker, pending: Pending, request: produce.ProduceRequest, version: int, admin: bool) -> int:
    """The error of a part that `_place` refused; clients may not write to internal topics, whichever broker leads."""
    topic, by_id = pending.target.topic, version >= produce.TOPIC_IDS
    error = partition_check.elsewhere(worker.snapshot, topic, pending.target.index, by_id)
    if error in (errors.UNKNOWN_TOPIC_ID, errors.UNKNOWN_TOPIC_OR_PARTITION):
        return error
    if not _acks_allowed(request.acks, version):
        return errors.INVALID_REQUIRED_ACKS
    name = worker.snapshot.by_id(topic) if by_id else topic.decode("utf-8", "replace")
    if name in topicnames.INTERNAL and not admin:
        return errors.INVALID_TOPIC_EXCEPTION
    return error


def handle(*_: Any) -> None:
    """Never called: `raw` serves Produce."""
    raise AssertionError("Produce is raw")


API = Api(key=0, name="Produce", versions=produce.VERSIONS, handle=handle, raw=raw, flexible=produce.FLEXIBLE)
