"""Produce (key 0), versions 0 to 13: append record batches to partitions.

A batch of magic 2 for a topic with plain settings is stored as it came, after a look at its header and its CRC;
everything else (magic 0 and 1, compression.type other than producer, compacted topics, LogAppendTime, timestamp
bounds) goes through `protocol.records.normalise`. Whole runs of requests become one append a partition (workers.round).

Versions below 3 carry magic 0 and 1, from 3 on only magic 2; v7 and later may carry zstd (KIP-110); v13 names topics
by id (KIP-516). acks=N above 1 is taken from version 0, where 0.8 meant something by it, as all; later versions refuse
it with INVALID_REQUIRED_ACKS. Left out: asking the coordinator whether a
transaction has the partition (KIP-890's verification); its markers reach only partitions that were added.

A client's requests begin with the same bytes again and again (client id, acks, topic, partition). So those bytes are
remembered for each connection with what they mean (`prefixes`), and such a request costs one dictionary look-up.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

from crc32c import crc32c
from odradek.protocol import errors, produce
from odradek.protocol.batch import (
    COMPRESSION,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from odradek.protocol.produce import PartResult, SingleReply
from odradek.protocol.wire import uvarint
from odradek.workers.api import Api
from odradek.workers.round import Pending

if TYPE_CHECKING:
    from odradek.storage.partition import Partition
    from odradek.workers.connection import Connection
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)

_I32 = struct.Struct(">i")
_ZSTD = 4
_LONGEST_PREFIX = 1024  # twice what clients send; names may be 32 KiB long each
_PREFIXES = 256  # remembered for a connection; a client has one for each partition it writes to


class Target:
    """What a prefix means: where the records go and how to answer."""

    __slots__ = ("acks", "index", "partition", "reply", "topic", "version")

    def __init__(self, partition: Partition, topic: bytes, index: int, acks: int, version: int) -> None:
        self.partition = partition
        self.topic = topic
        self.index = index
        self.acks = acks
        self.version = version
        self.reply = SingleReply(version, topic) if acks else None


class Several:
    """A request for any number of partitions, answered when all are decided."""

    __slots__ = ("acks", "correlation", "parts", "version")

    def __init__(self, version: int, correlation: int, acks: int) -> None:
        self.version = version
        self.correlation = correlation
        self.acks = acks
        self.parts: list[Pending] = []

    @property
    def size(self) -> int:
        """Bytes of records."""
        return sum(part.size for part in self.parts)

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts)

    def answer(self) -> bytes:
        """The response frame."""
        return produce.response(self.version, self.correlation, [_result(part) for part in self.parts])


def _result(part: Pending) -> PartResult:
    return PartResult(
        part.topic, part.index, part.error, part.base_offset, part.append_time, part.log_start, part.message,
        part.record_errors,
    )  # fmt: skip


def answer(pending: Pending | Several) -> bytes | None:
    """The response frame of a decided request, None when the client wants none."""
    if isinstance(pending, Several):
        return pending.answer() if pending.acks else None
    reply = pending.reply
    if reply is None:
        return None
    if pending.message is not None or pending.record_errors:
        return produce.response(pending.version, pending.correlation, [_result(pending)])
    return reply.pack(
        pending.correlation, pending.index, pending.error, pending.base_offset, pending.append_time, pending.log_start
    )


def refused_silently(pending: Pending | Several) -> bool:
    """Whether a request with acks=0 failed: Kafka tells such a client by closing its connection."""
    if isinstance(pending, Several):
        return not pending.acks and any(part.error for part in pending.parts)
    return pending.reply is None and bool(pending.error)


def raw(
    worker: Worker, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int, start: int,
    end: int,
) -> None:  # fmt: skip
    """Take the request whose header begins at `head` (its client id) and whose body is buffer[start:end]."""
    size = connection.prefix_size
    if size > 0 and connection.snapshot is worker.snapshot:
        target = connection.prefixes.get(bytes(buffer[head : head + size]))
        if target is not None and target.version == version:
            at = head + size
            if version < produce.FLEXIBLE:
                length = _I32.unpack_from(buffer, at)[0]
                at += 4
                tail = 0
            else:
                length, at = uvarint(buffer, at)
                length -= 1
                tail = 3
            if at + length + tail == end and length > 0:
                _take(worker, connection, target, correlation, buffer[at : at + length])
                return
    _parse(worker, connection, version, correlation, buffer, head, start, end)


def _parse(
    worker: Worker, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int, start: int,
    end: int,
) -> None:  # fmt: skip
    """The long way, which remembers the prefix of a request with one partition."""
    request = produce.parse(buffer, start, end, version)
    if len(request.parts) == 1:
        part = request.parts[0]
        partition = _place(worker, part, request.acks, version)
        if partition is not None and part.size > 0:
            target = Target(partition, part.topic, part.partition, request.acks, version)
            _remember(worker, connection, bytes(buffer[head : request.prefix_end]), target)
            _take(worker, connection, target, correlation, buffer[part.start : part.start + part.size])
            return
    _take_several(worker, connection, request, version, correlation, buffer)


def _remember(worker: Worker, connection: Connection, prefix: bytes, target: Target) -> None:
    if len(prefix) > _LONGEST_PREFIX:
        return
    if connection.snapshot is not worker.snapshot or len(prefix) != connection.prefix_size:
        connection.snapshot, connection.prefix_size = worker.snapshot, len(prefix)
        connection.prefixes.clear()
    if len(connection.prefixes) >= _PREFIXES:
        connection.prefixes.clear()
    connection.prefixes[prefix] = target


def _place(worker: Worker, part: produce.Part, acks: int, version: int) -> Partition | None:
    """Where a part goes; None when something about it must be refused."""
    if not _acks_allowed(acks, version):
        return None
    partition = worker.partition_of(part.topic, part.partition, version >= produce.TOPIC_IDS)
    if partition is None or ((acks < 0 or acks > 1) and partition.config.min_insync_replicas > 1):
        return None
    return partition


def _acks_allowed(acks: int, version: int) -> bool:
    return -1 <= acks <= 1 or (version == 0 and acks > 1)


def _pending(connection: Connection, correlation: int, target: Target, view: memoryview) -> Pending:
    pending = Pending(view, 0, -1)
    pending.connection = connection
    pending.correlation = correlation
    pending.done = False
    pending.index = target.index
    pending.reply = target.reply
    pending.topic = target.topic
    pending.version = target.version
    pending.request = None
    return pending


def _take(worker: Worker, connection: Connection, target: Target, correlation: int, view: memoryview) -> None:
    """One partition's records: check them, queue them for the round's append."""
    pending = _pending(connection, correlation, target, view)
    connection.order.append(pending)
    _check_in(worker, pending, target.partition, target.version)


def _check_in(worker: Worker, pending: Pending, partition: Partition, version: int) -> None:
    """Into the round if the records are sound, else decided at once."""
    if _plain(pending, partition, version) or _normalised(worker, pending, partition, version):
        worker.round.add(partition, pending)
    else:
        worker.round.finish((pending,))


def _plain(pending: Pending, partition: Partition, version: int) -> bool:
    """Whether the records are one sound batch that can be stored as it came; fills in what its header says.

    The header's count is believed up to a record a byte; a batch that claims more is opened on the slow path.
    """
    view, config = pending.view, partition.config
    size = len(view)
    if size < HEADER_SIZE or version < 3 or not config.plain:
        return False
    base, length, _, magic, crc, attributes, delta, _, timestamp, producer_id, epoch, sequence, count = (
        HEADER.unpack_from(view)
    )
    if magic != 2 or length + LOG_OVERHEAD != size or base or count != delta + 1 or not 0 < count <= size:
        return False
    if attributes & (CONTROL | LOG_APPEND_TIME) or size > config.max_message_bytes:
        return False
    compression = attributes & COMPRESSION
    if compression > _ZSTD or (compression == _ZSTD and version < 7):
        return False
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        return False
    if crc32c(view[CRC_START:]) != crc:
        return False
    pending.count = count
    pending.max_timestamp = timestamp
    pending.producer_id = producer_id
    pending.epoch = epoch
    pending.sequence = sequence
    if attributes & TRANSACTIONAL:
        if producer_id < 0:
            return False
        pending.transactional = True
    return True


def _normalised(worker: Worker, pending: Pending, partition: Partition, version: int) -> bool:
    """The slow way: check and convert record by record; False when the batch is refused."""
    from odradek.workers import slowpath

    return slowpath.prepare(pending, partition, version)


def _take_several(
    worker: Worker, connection: Connection, request: produce.ProduceRequest, version: int, correlation: int,
    buffer: memoryview,
) -> None:  # fmt: skip
    """A request for several partitions, or with something to refuse."""
    several = Several(version, correlation, request.acks)
    connection.order.append(several)
    wanted: list[tuple[Pending, Partition | None]] = []
    for part in request.parts:
        view = buffer[part.start : part.start + max(part.size, 0)]
        pending = Pending(view, 0, -1)
        pending.connection, pending.correlation, pending.done = connection, correlation, False
        pending.index, pending.topic, pending.version = part.partition, part.topic, version
        pending.reply, pending.request = None, several
        several.parts.append(pending)
        wanted.append((pending, _place(worker, part, request.acks, version)))
    for pending, partition in wanted:
        if partition is None:
            pending.refuse(_why(worker, pending, request, version))
            worker.round.finish((pending,))
        else:
            _check_in(worker, pending, partition, version)
    if not several.parts:
        worker.round.settle(connection)


def _why(worker: Worker, pending: Pending, request: produce.ProduceRequest, version: int) -> int:
    """The error of a part that `_target` refused."""
    if not _acks_allowed(request.acks, version):
        return errors.INVALID_REQUIRED_ACKS
    if worker.partition_of(pending.topic, pending.index, version >= produce.TOPIC_IDS) is None:
        by_id = version >= produce.TOPIC_IDS and worker.snapshot.by_id(pending.topic) is None
        return errors.UNKNOWN_TOPIC_ID if by_id else errors.UNKNOWN_TOPIC_OR_PARTITION
    return errors.NOT_ENOUGH_REPLICAS


def handle(*_: Any) -> None:
    """Never called: Produce is served by `raw`."""
    raise AssertionError("Produce is raw")


API = Api(key=0, name="Produce", versions=produce.VERSIONS, handle=handle, raw=raw, flexible=produce.FLEXIBLE)
