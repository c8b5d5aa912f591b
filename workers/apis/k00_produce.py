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

A request with the same target as the connection's last one is not decoded (workers.produce.produce_targets). A target
is what the client may write to by the ACLs in force: when these change, so does the metadata, and no target outlives
it.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from typing import TYPE_CHECKING

from odradek.cluster.rules import topicnames
from odradek.ipc.partition_counts import PRODUCE_REQUESTS
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
from odradek.protocol.crc import crc32c
from odradek.protocol.wire import uvarint
from odradek.storage.log.log_batch import NOT_ASKED
from odradek.workers.dispatch import partition_check
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import TOPIC, TRANSACTIONAL_ID, WRITE, Rights
from odradek.workers.net import connection_state, time_slices
from odradek.workers.produce.batching import PendingBatch
from odradek.workers.produce.produce_responses import MultiPartitionProduce
from odradek.workers.produce.produce_targets import ProduceTarget

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.workers.net.connection import Connection
    from odradek.workers.produce.produce_services import ProduceServices

log = logging.getLogger(__name__)

_KEY = 0
_I32 = struct.Struct(">i")
_ZSTD = 4
_ADMIN = struct.Struct(">h14s").pack(14, b"__admin_client")
"""The client id, encoded as in the request header, with which Kafka lets clients write to internal topics."""
_LONGEST_PREFIX = 1024  # twice what clients send; names may be 32 KiB long each
UNNAMED = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_COUNTED = (errors.NOT_LEADER_OR_FOLLOWER, errors.INVALID_TOPIC_EXCEPTION)  # what does not reach Kafka's log is not


def take(
    services: ProduceServices, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int,
    start: int, end: int,
) -> None:  # fmt: skip
    """Take the request whose header begins at `head` (its client id) and whose body is buffer[start:end]."""
    target = connection.target
    if (
        target is None
        or buffer.obj.find(target.prefix, head, head + target.size) != head  # type: ignore[attr-defined]  # no slice
        or target.version != version
        or target.metadata is not services.snapshot.identity
    ):
        target = _known_target(services, connection, version, buffer, head)
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
            connection.in_flight.append(_batch(services, connection, correlation, target, buffer, at, size))
            return
    _parse(services, connection, version, correlation, buffer, head, start, end)


def _known_target(
    services: ProduceServices, connection: Connection, version: int, buffer: memoryview, head: int
) -> ProduceTarget | None:
    """Another target whose prefix this request begins with, as remembered from any connection."""
    last = connection.target
    if last is None:
        return None
    rights, identity = services.authorization.of_connection(connection), services.snapshot.identity
    target = services.targets.get(rights, version, bytes(buffer[head : head + last.size]), identity)
    if target is None and last.follower is not None:  # another length: the target that came after this one before
        size = last.follower.size
        target = services.targets.get(rights, version, bytes(buffer[head : head + size]), identity)
    if target is not None:
        connection.target = target
    return target


def _parse(
    services: ProduceServices, connection: Connection, version: int, correlation: int, buffer: memoryview, head: int,
    start: int, end: int,
) -> None:  # fmt: skip
    """The slow path, which remembers the prefix of a request with one partition."""
    request = produce.parse(buffer, start, end, version)
    rights = services.authorization.of_connection(connection)
    if len(request.parts) == 1:
        part = request.parts[0]
        partition = _place(services, rights, part, request.acks, version, _is_admin(buffer, head))
        if partition is not None and part.size > 0:
            target = _target(partition, part, request, version, _named(rights, request))
            target.remember(bytes(buffer[head : request.prefix_end]), services.snapshot.identity)
            _remember(services, connection, target, rights)
            batch = _batch(services, connection, correlation, target, buffer, part.start, part.size)
            connection.in_flight.append(batch)
            return
    _take_several(services, connection, request, version, correlation, buffer, head, rights)


def _target(
    partition: Partition | None, part: produce.ProducePart, request: produce.ProduceRequest, version: int,
    transactional_id: bytes | None,
) -> ProduceTarget:  # fmt: skip
    return ProduceTarget(
        partition, part.topic, part.partition, request.acks, request.timeout_ms, version, transactional_id
    )


def _named(rights: Rights, request: produce.ProduceRequest) -> bytes | None:
    """The transactional id of a request; None also for one that the client may not use: transactional batches fail."""
    named = request.transactional_id
    if named is None or rights.session is None:
        return named
    return named if rights.allows(_KEY, WRITE, TRANSACTIONAL_ID, named.decode("utf-8", "replace")) else None


def _remember(services: ProduceServices, connection: Connection, target: ProduceTarget, rights: Rights) -> None:
    last, connection.target = connection.target, None
    if target.size <= _LONGEST_PREFIX:
        services.targets.keep(rights, target, services.snapshot.identity)
        connection.target = target
        if last is not None:
            last.follower = target


def _place(
    services: ProduceServices, rights: Rights, part: produce.ProducePart, acks: int, version: int, admin: bool
) -> Partition | None:
    """The partition of a part; None when the part must be refused.

    The remembered prefix contains the client id, so a permission holds for every request with that prefix.
    """
    if not _acks_allowed(acks, version):
        return None
    partition = services.partition_of(part.topic, part.partition, version >= produce.TOPIC_IDS)
    if partition is None or (partition.topic in topicnames.INTERNAL and not admin):
        return None
    return partition if rights.sees(WRITE, TOPIC, partition.topic) else None


def _is_admin(buffer: memoryview, head: int) -> bool:
    return buffer[head : head + len(_ADMIN)] == _ADMIN


def _acks_allowed(acks: int, version: int) -> bool:
    return -1 <= acks <= 1 or (version == 0 and acks > 1)


def _batch(
    services: ProduceServices,
    connection: Connection,
    correlation: int,
    target: ProduceTarget,
    buffer: memoryview,
    at: int,
    size: int,
) -> PendingBatch:
    """The batch in buffer[at:at+size], checked and queued for the round's append, or decided if it is refused.

    A single batch with a valid header, CRC and records is stored as it came. For a trusted producer the header's count
    is accepted up to one record per byte. A batch that claims more, and everything else, takes the slow path.
    """
    partition, config = target.partition, target.partition.config
    view = buffer[at : at + size]
    batch = PendingBatch(view, connection, correlation, target)
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
            and (not attributes or _attributes_sound(services, batch, attributes, producer_id))
            and (producer_id < 0 or (sequence >= 0 and epoch >= 0))
            and crc32c(view[CRC_START:]) == crc
            and (
                config.producers_trusted
                or services.record_check.is_sound(buffer, at, size, attributes, count, first, timestamp)
            )
        ):
            batch.count = count
            batch.max_timestamp = timestamp
            batch.producer_id = producer_id
            batch.epoch = epoch
            batch.sequence = sequence
            if attributes & TRANSACTIONAL:
                _add_transactional(services, batch)
            else:
                services.batching.add(partition, batch)
            return batch
    _open(services, batch)
    return batch


def _open(services: ProduceServices, batch: PendingBatch) -> None:
    """The slow path: check and convert record by record."""
    from odradek.workers.produce import convert

    services.spend(batch.connection)
    partition = batch.target.partition
    if batch.target.transactional_id is None and _is_transactional(batch.view, 0, batch.size):
        batch.refuse(UNNAMED)  # before any other error
        services.batching.finish((batch,))
    elif not convert.prepare(batch, partition, batch.target.version):
        services.batching.finish((batch,))
    elif batch.transactional:
        _add_transactional(services, batch)
    else:
        services.batching.add(partition, batch)


def _add_transactional(services: ProduceServices, batch: PendingBatch) -> None:
    """The append has the batch verified if it opens a transaction; that is impossible without a transactional id."""
    if batch.target.transactional_id is None:
        batch.refuse(UNNAMED)
        services.batching.finish((batch,))
        return
    if services.verification.enabled:
        batch.guard = NOT_ASKED
    services.batching.add(batch.target.partition, batch)


def _attributes_sound(services: ProduceServices, pending: PendingBatch, attributes: int, producer_id: int) -> bool:
    """Whether a batch with these attributes can be stored as it came; records that it is transactional or costly."""
    if attributes & (CONTROL | TIMESTAMP_TYPE):
        return False
    compression = attributes & COMPRESSION
    if compression:
        services.spend(pending.connection)
    if compression > _ZSTD or (compression == _ZSTD and pending.target.version < 7):
        return False
    if attributes & TRANSACTIONAL:
        if producer_id < 0:
            return False
        pending.transactional = True
    return True


def _take_several(
    services: ProduceServices, connection: Connection, request: produce.ProduceRequest, version: int, correlation: int,
    buffer: memoryview, head: int, rights: Rights,
) -> None:  # fmt: skip
    """Take a request for several partitions, or with a part to refuse."""
    taking = TakenParts(
        services, connection, request, MultiPartitionProduce(version, correlation, request.acks), buffer, head, rights
    )
    connection.in_flight.append(taking.several)
    if not taking.run():
        taking.keep()
        connection.state = connection_state.HOLD[connection.state]
        services.again(taking.go_on, connection)


class TakenParts:
    """Takes the parts of one request, one time slice at a go: there may be many, and records to decode."""

    def __init__(
        self, services: ProduceServices, connection: Connection, request: produce.ProduceRequest,
        several: MultiPartitionProduce, buffer: memoryview, head: int, rights: Rights,
    ) -> None:  # fmt: skip
        self.several = several
        self._rights = rights
        self._services = services
        self._connection = connection
        self._request = request
        self._buffer = buffer
        self._moved = 0  # how far the parts moved towards the start, in bytes, since the request was parsed
        self._admin = _is_admin(buffer, head)
        self._named = _named(rights, request)
        self._unnamed = self._named is None and _is_transactional_request(buffer, request)
        self._left = deque(_once(request.parts))

    def keep(self) -> None:
        """Keep the remaining parts beyond this round."""
        start = min(part.start for part in self._left)
        end = max(part.start + max(part.size, 0) for part in self._left)
        self._buffer, at, _ = self._services.kept(self._buffer, start, end)
        self._moved = start - at

    def go_on(self) -> bool:
        """`run` in a later turn, unless the client is gone."""
        return self._connection.closed or self.run()

    def run(self) -> bool:
        """Take parts for one slice; returns whether those were all."""
        until = time.monotonic() + time_slices.SLICE_S
        while self._left:
            self.several.add(self._take(self._left.popleft()))
            if self._left and time.monotonic() >= until:
                return False
        self.several.taken = True
        self._services.batching.settle(self._connection)
        return True

    def _take(self, part: produce.ProducePart) -> PendingBatch:
        services, connection, request, several = self._services, self._connection, self._request, self.several
        version, correlation = several.version, several.correlation
        rights = self._rights
        partition = None if self._unnamed else _place(services, rights, part, request.acks, version, self._admin)
        target, start = _target(partition, part, request, version, self._named), part.start - self._moved
        if partition is not None:
            return _batch(services, connection, correlation, target, self._buffer, start, max(part.size, 0))
        batch = PendingBatch(self._buffer[start:start], connection, correlation, target)
        error = UNNAMED if self._unnamed else _why(services, rights, batch, request, version, self._admin)
        services.counts.elsewhere[PRODUCE_REQUESTS] += error in _COUNTED
        batch.refuse(error)
        services.batching.finish((batch,))
        return batch


def _once(parts: list[produce.ProducePart]) -> list[produce.ProducePart]:
    """Each partition once: of several parts for one partition, Kafka stores and answers the last."""
    return list({(part.topic, part.partition): part for part in parts}.values())


def _is_transactional_request(buffer: memoryview, request: produce.ProduceRequest) -> bool:
    """Whether it has whole transactional batches: without a transactional id Kafka refuses the whole request."""
    return any(_is_transactional(buffer, part.start, part.size) for part in request.parts)


def _is_transactional(buffer: memoryview, at: int, size: int) -> bool:
    """Whether the first batch in these bytes is whole and transactional."""
    if size < HEADER_SIZE:
        return False
    header = HEADER.unpack_from(buffer, at)
    return bool(header[3] == 2 and header[5] & TRANSACTIONAL and header[1] + LOG_OVERHEAD <= size)


def _why(
    services: ProduceServices, rights: Rights, pending: PendingBatch, request: produce.ProduceRequest, version: int,
    admin: bool,
) -> int:  # fmt: skip
    """The error of a part that `_place` refused; clients may not write to internal topics, whichever broker leads."""
    topic, by_id = pending.target.topic, version >= produce.TOPIC_IDS
    error = partition_check.elsewhere(services.snapshot, topic, pending.target.index, by_id)
    name = services.snapshot.by_id(topic) if by_id else topic.decode("utf-8", "replace")
    if name is not None and not rights.allows(_KEY, WRITE, TOPIC, name):
        return errors.TOPIC_AUTHORIZATION_FAILED
    if error in (errors.UNKNOWN_TOPIC_ID, errors.UNKNOWN_TOPIC_OR_PARTITION):
        return error
    if not _acks_allowed(request.acks, version):
        return errors.INVALID_REQUIRED_ACKS
    if name in topicnames.INTERNAL and not admin:
        return errors.INVALID_TOPIC_EXCEPTION
    return error


API = Api(
    key=_KEY, name="Produce", versions=produce.VERSIONS, fast_path=take, pipelined=True, flexible=produce.FLEXIBLE
)
