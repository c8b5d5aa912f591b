"""A classic consumer group: its members, its state and the rules that keep them consistent.

`rebalance`, `joining` and `syncing` decide when to rebalance; this module has the data that they change.
"""

from __future__ import annotations

import enum
import struct
from collections import Counter
from typing import Any

from odradek.groups.events import Answer, Append, GroupConfig, JoinResult, Now, Protocols, Reload, SyncResult
from odradek.groups.member import Member
from odradek.groups.offsets import Offsets
from odradek.groups.records import GroupValue
from odradek.groups.timers import Deadlines
from odradek.protocol.errors import Error

CONSUMER = "consumer"
MOST_SUBSCRIBED = 1 << 20
"""Most topics to read from all members' subscriptions, at 0.1 µs each; above it, the group's subscription is unknown.
One JoinGroup has room for forty million, which would take the coordinator seconds."""
Timer = tuple[str, str, str]  # group, kind ("member", "pending", "join", "sync"), member id or ""


class State(enum.Enum):
    """The states of a group; the values are the names that clients and tools see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_GONE = "this coordinator serves it no longer"
_CHANGE = "a member joins, leaves, fails or subscribes to something else"
TRANSITIONS: dict[State, dict[State, str]] = {
    State.EMPTY: {State.PREPARING: "first member", State.DEAD: f"deleted or expired, or {_GONE}"},
    State.PREPARING: {
        State.COMPLETING: "all members have rejoined, or the rebalance timeout is over",
        State.EMPTY: "no member is left",
        State.DEAD: _GONE,
    },
    State.COMPLETING: {State.STABLE: "the assignment is in the log", State.PREPARING: _CHANGE, State.DEAD: _GONE},
    State.STABLE: {State.PREPARING: _CHANGE, State.DEAD: _GONE},
    State.DEAD: {State.DEAD: _GONE},
}
"""The states that may follow each state, and when: `make docs` draws docs/states.md from this table."""


class Group:
    """State of one group. It queues effects in `effects` and sets deadlines in the shared `timers`.

    `partition`: the one in `__consumer_offsets`, by the hash of the id; stored because hashing is slow.
    """

    def __init__(
        self, group_id: str, partition: int, config: GroupConfig, timers: Deadlines[Timer],
        effects: list[Answer | Append | Reload],
    ) -> None:  # fmt: skip
        self.id = group_id
        self.partition = partition
        self.config = config
        self.timers = timers
        self.effects = effects
        self.state = State.EMPTY
        self.state_since_ms: int | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self._leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.pending: set[str] = set()  # ids handed out by MEMBER_ID_REQUIRED that have not joined yet
        self.unsynced: set[str] = set()  # members that got the generation but have not sent SyncGroup
        self.joined = 0  # members whose JoinGroup waits
        self.initial_delay_left_ms: int | None = None  # not None: the first rebalance waits for more members
        self.member_added = False  # since the initial delay began
        self.subscribed: frozenset[str] | None = None
        self.offsets = Offsets()
        self._support: Counter[str] = Counter()

    # -- state ----------------------------------------------------------------------------------------------

    def to(self, state: State, now: Now) -> None:
        """Change state; AssertionError for a transition that the table does not have."""
        assert state in TRANSITIONS[self.state], f"group {self.id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        return State.PREPARING in TRANSITIONS[self.state]

    @property
    def is_unused(self) -> bool:
        """Whether it is empty, here and in the log: no member yet, no id handed out, no offset."""
        return self.state is State.EMPTY and not self.generation and not self.pending and not self.offsets

    @property
    def everyone_joined(self) -> bool:
        return len(self.members) == self.joined and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def accepts(self, member_id: str) -> bool:
        """Whether there is room for this member under `group.max.size`.

        During PreparingRebalance only members that have joined count, so that a group above a lowered limit drops the
        last ones to rejoin.
        """
        if self.state in (State.EMPTY, State.DEAD):
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            return (member is not None and member.join is not None) or self.joined < self.config.max_size
        return member is not None or len(self.members) < self.config.max_size

    # -- members --------------------------------------------------------------------------------------------

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns partitions; if it has left, the oldest member at the time of this call.

        Not chosen when the leader leaves: with all members in one LeaveGroup, each would scan all that left before it.
        """
        if self._leader not in self.members:
            self._leader = next(iter(self.members), None)
        return self._leader

    @leader.setter
    def leader(self, member_id: str | None) -> None:
        self._leader = member_id

    def add(self, member: Member, token: Any, protocol_type: str) -> None:
        """Add a member whose JoinGroup is `token` (None: loaded from the log)."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self.members[member.id] = member
        self._support.update(name for name, _ in member.protocols)
        self.pending.discard(member.id)
        self.wait_join(member, token)

    def remove(self, member_id: str, error: Error = Error.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member or a handed-out id; answer its waiting requests with `error`."""
        member = self.members.get(member_id)
        if member is not None:
            self.answer_join(member, JoinResult(error, ""))
            self.answer_sync(member, SyncResult(error))
            del self.members[member_id]
            self._withdraw(member.protocols)
            if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
                del self.static[member.instance_id]
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self.timers.cancel((self.id, "member", member_id))
        self.timers.cancel((self.id, "pending", member_id))

    def abandon(self, error: Error) -> None:
        """Answer all waiting requests with `error` and become Dead, even if an exception left members half changed."""
        for member in self.members.values():
            self.answer_join(member, JoinResult(error, member.id))
            self.answer_sync(member, SyncResult(error))
            self.timers.cancel((self.id, "member", member.id))
        for member_id in self.pending:
            self.timers.cancel((self.id, "pending", member_id))
        for kind in ("join", "sync"):
            self.timers.cancel((self.id, kind, ""))
        self.members.clear()
        self.pending.clear()
        self.state = State.DEAD

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member a new member id; it keeps its place, its leadership and its assignment."""
        assert member.instance_id is not None
        self.timers.cancel((self.id, "member", member.id))
        if self.leader == member.id:
            self.leader = new_id
        del self.members[member.id]
        if member.id in self.unsynced:
            self.unsynced.remove(member.id)
            self.unsynced.add(new_id)
        member.id = new_id
        self.members[new_id] = member
        self.static[member.instance_id] = new_id

    def update(self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        """Apply a member's new JoinGroup."""
        self._withdraw(member.protocols)
        self._support.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def _withdraw(self, protocols: Protocols) -> None:
        """Remove a member's support for these; drop protocols that no member supports."""
        for name, _ in protocols:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def alive(self, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        """Restart the member's session timeout."""
        after = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.set((self.id, "member", member.id), now.steady_ms + after)

    # -- protocols ------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all others."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._support[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; the oldest voter breaks ties."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None when they are unknown."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        left = MOST_SUBSCRIBED
        try:
            for member in self.members.values():
                names = subscription_topics(member.metadata(self.protocol), left)
                topics.update(names)
                left -= len(names)
        except (struct.error, KeyError, UnicodeDecodeError):
            return None
        return frozenset(topics)

    # -- waiting requests -----------------------------------------------------------------------------------

    def wait_join(self, member: Member, token: Any) -> None:
        """Let the member's JoinGroup wait; an earlier one that waits gets REBALANCE_IN_PROGRESS."""
        if member.join is not None:
            self.answer_join(member, JoinResult(Error.REBALANCE_IN_PROGRESS, member.id))
        member.join = token
        self.joined += token is not None

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answer the member's waiting JoinGroup, if there is one."""
        if member.join is None:
            return False
        self.effects.append(Answer(member.join, result))
        member.join = None
        self.joined -= 1
        return True

    def wait_sync(self, member: Member, token: Any) -> None:
        """Let the member's SyncGroup wait; an earlier one that waits gets REBALANCE_IN_PROGRESS."""
        self.answer_sync(member, SyncResult(Error.REBALANCE_IN_PROGRESS))
        member.sync = token

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the member's waiting SyncGroup, if there is one."""
        if member.sync is None:
            return False
        self.effects.append(Answer(member.sync, result))
        member.sync = None
        return True

    def current(self, member: Member, *, skip_assignment: bool = False, leader: str | None = None) -> JoinResult:
        """The current generation in a response to one member; only the leader gets the list of members."""
        leader_id = self.leader if leader is None else leader
        return JoinResult(
            Error.NONE,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader_id or "",
            skip_assignment,
            self.roster() if leader_id == member.id else (),
        )

    def roster(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Member id, instance id and subscription of all members, for the leader."""
        return tuple((m.id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    # -- the log --------------------------------------------------------------------------------------------

    def value(self, assignments: dict[str, bytes]) -> GroupValue:
        """The log record of this generation."""
        return GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            -1 if self.state_since_ms is None else self.state_since_ms,
            tuple(m.value(self.protocol, assignments[m.id]) for m in self.members.values()),
        )

    def load(self, value: GroupValue) -> None:
        """Load the state from the log: Stable with its members, or Empty without."""
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since_ms = None if value.state_since_ms == -1 else value.state_since_ms
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        for member in {member.member_id: member for member in value.members}.values():
            self.add(Member.loaded(member, value.protocol), None, value.protocol_type)
        self.subscribed = self.compute_subscribed()


def subscription_topics(metadata: bytes, most: int) -> list[str]:
    """The topics of a consumer's subscription: version i16, count i32, strings; later versions append to that.

    struct.error for a subscription that is malformed or has more than `most` topics.
    """
    (count,) = struct.unpack_from(">i", metadata, 2)
    if count > most:
        raise struct.error("more topics than are read")
    position, topics = 6, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", metadata, position)
        position += 2
        if length < 0 or position + length > len(metadata):
            raise struct.error("a topic name ends too early")
        topics.append(metadata[position : position + length].decode())
        position += length
    return topics
