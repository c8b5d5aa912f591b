"""Rebuilding producer state from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import renewal
from odradek.ipc.slots import F_LEO, F_PSTATE_GEN, F_PSTATE_LEO
from odradek.protocol import batch
from odradek.storage.log import read
from odradek.storage.log.sequences import OWN, PLAIN, TRANSACTIONAL, Staged
from odradek.storage.producers.producer_state import parse_marker

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition


def staged_between(partition: Partition, values: Fields, start: int, end: int) -> Staged:
    """The producer updates of the batches in [start, end), for `Producers.apply`. Caller holds the lock."""
    staged = Staged(None)
    offset = start
    while offset < end:
        renewal.renew()
        data = read.raw(partition, values, offset, 1 << 20)
        if not data:
            break
        for at, header in headers(data):
            offset = header[0] + header[6] + 1
            if header[9] >= 0 and header[0] >= start:
                stage(staged, header, memoryview(data)[at : at + header[1] + batch.LOG_OVERHEAD])
    return staged


def stage(staged: Staged, header: tuple[int, ...], data: memoryview) -> None:
    """Admit one batch of the log without a check: the append checked it. Compaction may have removed records of it."""
    base, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, first, _ = header
    if attributes & batch.CONTROL:
        marker = parse_marker(data)
        if marker is not None:
            staged.decide(producer_id, epoch, marker[1], base, timestamp)
        return
    if first < 0:
        staged.replay(producer_id, epoch, -1, -1, base, base + delta, timestamp, OWN)
        return
    last = batch.last_sequence(first, delta + 1)
    kind = TRANSACTIONAL if attributes & batch.TRANSACTIONAL else PLAIN
    staged.replay(producer_id, epoch, first, last, base, base + delta, timestamp, kind)


def publish(partition: Partition, values: Fields, staged: Staged) -> None:
    """Apply and publish the producer updates below the published log end. Caller holds the lock and reserved room."""
    partition.producers.apply(staged, values[F_PSTATE_GEN])
    values[F_PSTATE_LEO] = values[F_LEO]
    partition.slot.set_unpublished(F_PSTATE_LEO, values[F_LEO])


def headers(data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """(position, header) of the whole batches in `data`."""
    found, at, end = [], 0, len(data)
    while end - at >= batch.HEADER_SIZE:
        header = batch.HEADER.unpack_from(data, at)
        following = at + header[1] + batch.LOG_OVERHEAD
        if following > end:
            break
        found.append((at, header))
        at = following
    return found
