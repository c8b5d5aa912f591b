"""Inputs and outputs of the group state machines.

In : requests as plain tuples, deadlines that passed, and the outcome of appends, each with the time `Now`.
Out: `Answer`s to requests, `Append`s to `__consumer_offsets`, and `Reload`s, in the order of execution.
A token is an opaque object that the caller passes with a request; the machines only return it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.groups.offsets import TopicPartition
from odradek.groups.records import OffsetValue
from odradek.protocol.errors import Error
from odradek.protocol.wire import INT32_MAX

Protocols = tuple[tuple[str, bytes], ...]
Record = tuple[bytes, bytes | None]


class Now(NamedTuple):
    """`steady_ms` never jumps and drives deadlines; `wall_ms` is epoch time and goes into records."""

    steady_ms: int
    wall_ms: int


class GroupConfig(NamedTuple):
    """The broker's settings for groups, with Kafka's names (`group.max.size`, …) and defaults."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    initial_delay_ms: int = 3_000
    max_size: int = INT32_MAX
    max_metadata: int = 4_096
    retention_ms: int = 7 * 24 * 3600 * 1000
    commit_timeout_ms: int = 5_000


class Join(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_member_id: bool = False  # KIP-394: JoinGroup v4+ without an instance id
    can_skip_assignment: bool = False  # KIP-814: JoinGroup v9+
    reason: str | None = None


class JoinResult(NamedTuple):
    error: Error
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # member id, instance id, subscription


class Sync(NamedTuple):
    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] = {}


class SyncResult(NamedTuple):
    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    error: Error
    members: tuple[tuple[LeavingMember, Error], ...] = ()


class Commit(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: dict[TopicPartition, OffsetValue]
    unknown_group_is_not_found: bool = False  # OffsetCommit v9+ distinguishes a missing group from an old generation
    producer: tuple[int, int] | None = None  # (id, epoch) for TxnOffsetCommit

    @property
    def in_transaction(self) -> bool:
        return self.producer is not None


class Answer(NamedTuple):
    """Send `result` to the requester that passed `token`."""

    token: Any
    result: Any


class Reload(NamedTuple):
    """Read the partition of `key` (a group or transactional id) again, and load the state of that key."""

    key: str


class Append(NamedTuple):
    """Append `records` in order to the partition of the group (or transactional id), then call `done`.

    `done(error, position, now)`: `position` is the offset of the batch; on an error it is -1 and none of the records
    is in the log. `producer` (id, epoch) makes them part of that producer's transaction.
    """

    group: str
    records: list[Record]
    done: Callable[[Error, int, Now], None]
    producer: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """The key to reload if this append could not be carried out."""
        return self.group
