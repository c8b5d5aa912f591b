"""A follower's fetch state from which the tests of `odradek.cluster.replication.partition_fetch_states` start."""

from __future__ import annotations

from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.partition_fetch_states import FetcherConfig, PartitionFetchStates, Position
from odradek.protocol.fetch import FetchPartition, FetchRequest

LIMITS = FetcherConfig(replica=7, max_wait_ms=500, min_bytes=1, max_bytes=1000, part_bytes=100, backoff_ms=1000)
A, B, C = ((b"t" * 16, 0), (b"t" * 16, 1), (b"u" * 16, 0))
SESSION = 99


def at(offset: int, epoch: int = 3) -> Position:
    return Position(epoch, offset, epoch - 1, 0)


def part(key: Key, offset: int, epoch: int = 3) -> FetchPartition:
    return FetchPartition(*key, epoch, offset, epoch - 1, 0, 100)


def following_of(*keys: Key) -> PartitionFetchStates:
    """The fetch states of partitions from offset 10 on, after the answer to the first request."""
    machine = PartitionFetchStates(LIMITS)
    for key in keys:
        machine.assign(key, at(10))
    fetched(machine)
    assert machine.answered(0, SESSION, 0)
    return machine


def fetched(machine: PartitionFetchStates, now_ms: int = 0) -> FetchRequest:
    request = machine.request(now_ms)
    assert isinstance(request, FetchRequest)
    return request
