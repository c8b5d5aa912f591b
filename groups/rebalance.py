"""The steps of a rebalance, as functions over a `Group`; docs/states.md shows the states.

In PreparingRebalance a group that was empty waits `group.initial.rebalance.delay.ms` for more members; any other group
waits until all members have rejoined, at most the largest rebalance timeout. In CompletingRebalance a new generation
waits for its leader's assignment.

Cooperative rebalancing (KIP-429) runs the same steps twice: the assignments contain what members keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.groups.errors import for_store
from odradek.groups.events import Append, Now, SyncResult
from odradek.groups.group import Group, State
from odradek.groups.member import Member
from odradek.groups.records import group_key, group_value
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member may wait in JoinGroup: it cannot send heartbeats, and may be gone."""

LEAST_WAIT_MS = 1_000
"""Least wait when no member has rejoined: a rebalance timeout of 0 would keep the coordinator busy."""


def maybe_prepare(group: Group, reason: str, now: Now) -> None:
    """Start a rebalance unless one is under way."""
    if group.can_rebalance:
        prepare(group, reason, now)


def prepare(group: Group, reason: str, now: Now) -> None:
    """Start a rebalance: all members must join again."""
    if group.state is State.COMPLETING:
        propagate(group, Error.REBALANCE_IN_PROGRESS, now)
    stop_waiting_for_syncs(group)
    first = group.state is State.EMPTY
    group.to(State.PREPARING, now)
    log.info("group %s: rebalance after generation %d (%s)", group.id, group.generation, reason)
    if first:
        _start_initial_delay(group, now)
    else:
        _await_joins(group, now)
        maybe_complete_join(group, now)


def _start_initial_delay(group: Group, now: Now) -> None:
    """Wait briefly for more members, so that a fleet that starts together needs one rebalance."""
    delay = group.config.initial_delay_ms
    group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
    group.member_added = False
    group.timers.set((group.id, "join", ""), now.steady_ms + delay)


def _await_joins(group: Group, now: Now, least_ms: int = 0) -> None:
    group.timers.set((group.id, "join", ""), now.steady_ms + max(group.rebalance_timeout_ms, least_ms))


def maybe_complete_join(group: Group, now: Now) -> None:
    """End the wait for members when all have joined; the initial delay always runs to its end."""
    waiting = group.state is State.PREPARING and group.initial_delay_left_ms is None
    if waiting and group.everyone_joined:
        complete_join(group, now)


def expire_join(group: Group, now: Now) -> None:
    """End the wait for members; extend the initial delay, within its bound, while members keep joining."""
    if group.state is not State.PREPARING:
        return
    left = group.initial_delay_left_ms
    if left and group.member_added:
        delay = min(group.config.initial_delay_ms, left)
        group.member_added = False
        group.initial_delay_left_ms = max(left - delay, 0)
        group.timers.set((group.id, "join", ""), now.steady_ms + delay)
        return
    complete_join(group, now)


def complete_join(group: Group, now: Now) -> None:
    """Continue with the joined members: drop the others, select leader and protocol, answer all."""
    group.initial_delay_left_ms = None
    group.timers.cancel((group.id, "join", ""))
    _drop_absent(group)
    if group.members and not _elect(group):
        log.warning("group %s: no member rejoined in time: waiting for its static members to expire", group.id)
        _await_joins(group, now, LEAST_WAIT_MS)
        return
    group.generation += 1
    if group.members:
        _start_generation(group, now)
    else:
        _become_empty(group, now)


def _drop_absent(group: Group) -> None:
    """Remove dynamic members that did not rejoin; static ones stay until their session expires."""
    for member in list(group.members.values()):
        if member.join is None and not member.is_static:
            log.info("group %s: member %s did not rejoin in time", group.id, member.id)
            group.remove(member.id)


def _elect(group: Group) -> bool:
    """Keep the leader if it has joined, else take the oldest joined member; False when no member has joined."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.join is not None:
        return True
    present = next((member.id for member in group.members.values() if member.join is not None), None)
    if present is not None:
        group.leader = present
    return present is not None


def _become_empty(group: Group, now: Now) -> None:
    group.protocol = None
    group.subscribed = group.compute_subscribed()
    group.unsynced.clear()
    group.to(State.EMPTY, now)

    def stored(error: Error, _position: int, _now: Now) -> None:
        if error:  # harmless: after a restart the former members would be loaded and time out
            log.warning("group %s: cannot write its empty state: %s", group.id, error.name)

    group.effects.append(Append(group.id, [(group_key(group.id), group_value(group.value({})))], stored))


def _start_generation(group: Group, now: Now) -> None:
    group.protocol = group.select_protocol()
    group.subscribed = group.compute_subscribed()
    group.to(State.COMPLETING, now)
    log.info("group %s: generation %d with %d members", group.id, group.generation, len(group.members))
    group.unsynced = set(group.members)
    for member in group.members.values():
        group.answer_join(member, group.current(member))
        member.is_new = False
        group.alive(member, now)
    group.timers.set((group.id, "sync", ""), now.steady_ms + group.rebalance_timeout_ms)


def propagate(group: Group, error: Error, now: Now) -> None:
    """Answer all waiting SyncGroups: with each member's assignment, or with `error` and none."""
    for member in group.members.values():
        if error:
            member.assignment = b""
            result = SyncResult(error)
        else:
            result = SyncResult(error, group.protocol_type, group.protocol, member.assignment)
        if group.answer_sync(member, result):
            group.alive(member, now)  # its session did not run during the wait


def store(group: Group, assignments: dict[str, bytes], generation: int, reason: str) -> Append:
    """The append that makes an assignment valid; its outcome ends CompletingRebalance for the generation."""

    def stored(error: Error, _position: int, now: Now) -> None:
        if group.state is not State.COMPLETING or group.generation != generation:
            return  # another rebalance started meanwhile and has answered all members
        if error:
            propagate(group, for_store(error), now)
            maybe_prepare(group, f"{reason}; storing it failed: {error.name}", now)
            return
        for member in group.members.values():
            member.assignment = assignments[member.id]
        propagate(group, Error.NONE, now)
        group.to(State.STABLE, now)

    return Append(group.id, [(group_key(group.id), group_value(group.value(assignments)))], stored)


def synced(group: Group, member_id: str) -> None:
    """Record that this member has sent SyncGroup."""
    group.unsynced.discard(member_id)
    if not group.unsynced:
        stop_waiting_for_syncs(group)


def stop_waiting_for_syncs(group: Group) -> None:
    group.unsynced.clear()
    group.timers.cancel((group.id, "sync", ""))


def expire_sync(group: Group, now: Now) -> None:
    """Remove members that got the generation but never sent SyncGroup."""
    if group.state not in (State.COMPLETING, State.STABLE) or not group.unsynced:
        return
    late = set(group.unsynced)
    for member_id in late:
        group.remove(member_id)
    prepare(group, f"{len(late)} members did not sync in time", now)


def expire_pending(group: Group, member_id: str, now: Now) -> None:
    """Remove a handed-out id whose member never joined with it."""
    if member_id in group.pending:
        group.remove(member_id)
        maybe_complete_join(group, now)


def expire_member(group: Group, member_id: str, now: Now) -> None:
    """Remove a member whose session expired, unless it waits for the coordinator."""
    member = group.members.get(member_id)
    if member is None or member.is_waiting:
        return
    log.info("group %s: member %s timed out", group.id, member_id)
    remove_member(group, member, f"member {member_id} timed out", now)


def remove_member(group: Group, member: Member, reason: str, now: Now) -> None:
    """Remove a member and rebalance the others; its waiting requests get UNKNOWN_MEMBER_ID."""
    group.remove(member.id)
    if group.state in (State.STABLE, State.COMPLETING):
        maybe_prepare(group, reason, now)
    else:
        maybe_complete_join(group, now)


# The handler of each kind of deadline; only the first two use the member id.
EXPIRY: dict[str, Callable[[Group, str, Now], None]] = {
    "member": expire_member,
    "pending": expire_pending,
    "join": lambda group, _member_id, now: expire_join(group, now),
    "sync": lambda group, _member_id, now: expire_sync(group, now),
}
