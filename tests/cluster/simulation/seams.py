"""Replaces clock, sockets, files and codec in the real modules, by their names in each module.

Frames are not encoded: a frame is a number that stands for the message. All names are restored afterwards.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from odradek.broker.controller.elected import (
    broker_requests,
    controller_node,
    elected,
    leader_election,
    request_builder,
)
from odradek.broker.controller.member import (
    broker_addresses,
    controlled_shutdown,
    isr_keeper,
    join,
    member,
    registration,
)
from odradek.broker.controller.replicas import controller_requests, replica_manager, slot_allocator
from odradek.broker.interbroker import connection, peers
from odradek.broker.replicator import follower_log, leader_fetcher, replicator, truncations
from odradek.cluster.tree import znodes
from odradek.ipc import slots
from odradek.protocol.fetch_client import FetchResponse, ListOffsetsPartition
from odradek.storage.log import leader_or_follower, repair
from odradek.workers.apis import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k07_controlled_shutdown,
    k21_delete_records,
)
from odradek.workers.fetch import epoch_caches, follower_fetch, follower_progress
from odradek.workers.produce import acks_all

from . import disk, memory, store
from .sockets import Resolver, Sockets
from .world import World

_TIMED = (
    broker_addresses, member, elected, leader_election, broker_requests, controlled_shutdown, isr_keeper,
    replica_manager, controller_node, registration, leader_fetcher, connection, controller_requests, replicator,
    slot_allocator, follower_fetch, follower_progress, acks_all,
)  # fmt: skip
_SPOKEN = (
    broker_requests,
    request_builder,
    controlled_shutdown,
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k07_controlled_shutdown,
)
_FRAME = struct.Struct(">iq")


class Clock:
    """`time` on the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def monotonic_ns(self) -> int:
        return int(self._world.now * 1_000_000_000)

    def time_ns(self) -> int:
        return 1_600_000_000_000_000_000 + self.monotonic_ns()

    def time(self) -> float:
        return self.time_ns() / 1e9


class _Nested(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Message


class Message(SimpleNamespace, metaclass=_Nested):
    """Any message and any struct of one."""


class Codec:
    """protocol.interbroker and protocol.fetch_client without bytes."""

    EARLIEST, LATEST = -2, -1

    def __init__(self) -> None:
        self._messages: dict[int, Any] = {}

    def frame(self, message: Any) -> bytes:
        """A frame that stands for the message."""
        number = len(self._messages) + 1
        self._messages[number] = message
        return _FRAME.pack(8, number)

    def message(self, frame: Any) -> Any:
        """The message that a frame stands for, with or without its length."""
        return self._messages[int.from_bytes(bytes(frame)[-8:], "big")]

    @staticmethod
    def message_class(name: str) -> type[Message]:
        return Message

    def request(self, name: str, version: int, correlation: int, client_id: str | None, **fields: Any) -> bytes:
        return self.frame((name, version, client_id, Message(**fields)))

    def response(self, name: str, version: int, frame: Any) -> tuple[int, Any]:
        return 0, self.message(frame)

    def encode_fetch(self, request: Any, correlation: int, client: bytes) -> bytes:
        return self.frame(("Fetch", request))

    def parse_fetch(self, frame: Any, correlation: int) -> FetchResponse:
        return self.message(frame)

    def encode_list_offsets(self, replica: int, at: int, places: Any, correlation: int, client: bytes) -> bytes:
        return self.frame(("ListOffsets", at, places))

    def parse_list_offsets(self, frame: Any, correlation: int) -> list[ListOffsetsPartition]:
        return self.message(frame)


def _takes_long(partition: Any, offset: int) -> bool:
    cluster = partition.owner.shared.broker.cluster
    return bool(cluster.world.chance(cluster.aside))


def _ids(seed: int) -> Any:
    source = random.Random(seed)
    return lambda: source.getrandbits(127).to_bytes(16, "big")


@contextmanager
def installed(world: World, codec: Codec, sockets: Sockets, seed: int) -> Iterator[None]:
    """Run the real modules in `world`."""
    changes: list[tuple[Any, str, Any]] = [(module, "time", Clock(world)) for module in _TIMED]
    changes += [(module, "interbroker", codec) for module in _SPOKEN]
    changes += [
        (leader_fetcher, "fetch_client", codec), (leader_fetcher, "fetched_batches", store.Received),
        (truncations, "may_take_long", _takes_long),
        (broker_addresses, "Resolver", Resolver), (peers, "Resolver", Resolver), (connection, "socket", sockets),
        (slots, "CHUNK", memory.SLOTS), (znodes, "random_uuid", _ids(seed)),
        (join, "PartitionDirs", disk.Dirs), (join, "CheckpointLocks", lambda run_dir: None),
        (join, "PartitionLocks", lambda path: memory.LOCKS[path.parent]),
        (replica_manager, "Log", disk.MemoryLog), (leader_or_follower, "roll", store.Roll),
        (repair, "roll", store.Roll), (k21_delete_records, "trim", store.Trim),
        (follower_log, "roll", store.Roll), (follower_log, "known_epochs", store.KnownEpochs),
        (follower_log, "append_as_follower", store.Follow), (follower_log, "truncate", store.Truncate),
        (follower_log, "lower", store.lower), (follower_log, "lower_cleaner_point", lambda *_: None),
        (epoch_caches, "known_epochs", store.KnownEpochs), (follower_fetch, "read", store.Read),
        (follower_progress, "QUICK_TRIES", 0),
    ]  # fmt: skip
    former = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in former:
            setattr(module, name, value)
        memory.LOCKS.clear()
