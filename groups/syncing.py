"""Requests of members within a generation: SyncGroup, Heartbeat, LeaveGroup, and the check of OffsetCommit.

Each checks the member, then applies one entry of a table by the group's state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from odradek.groups.events import Answer, Commit, LeavingMember, Now, Sync, SyncResult
from odradek.groups.group import Group, State
from odradek.groups.joining import validate_member
from odradek.groups.member import Member
from odradek.groups.rebalance import maybe_complete_join, remove_member, store, synced
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

# -- SyncGroup --------------------------------------------------------------------------------------------------


def sync(group: Group, request: Sync, token: Any, now: Now) -> None:
    """SyncGroup of a member; the leader's contains all assignments. Answers when the assignment is in the log."""
    error = _sync_refusal(group, request)
    if error:
        group.effects.append(Answer(token, SyncResult(error)))
    else:
        SYNC[group.state](group, group.members[request.member_id], request, token, now)


def _sync_refusal(group: Group, request: Sync) -> Error:
    if group.state is State.DEAD:
        return Error.COORDINATOR_NOT_AVAILABLE
    error = validate_member(group, request.member_id, request.instance_id)
    if error:
        return error
    if request.generation != group.generation:
        return Error.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol is not None and request.protocol != group.protocol:
        return Error.INCONSISTENT_GROUP_PROTOCOL
    return Error.NONE


def _sync_refused(error: Error) -> Callable[[Group, Member, Sync, Any, Now], None]:
    def refuse(group: Group, _member: Member, _request: Sync, token: Any, _now: Now) -> None:
        group.effects.append(Answer(token, SyncResult(error)))

    return refuse


def _sync_completing(group: Group, member: Member, request: Sync, token: Any, now: Now) -> None:
    group.wait_sync(member, token)
    synced(group, member.id)
    if group.leader == member.id:
        missing = group.members.keys() - request.assignments.keys()
        if missing:
            log.warning("group %s: the leader assigned nothing to %d members", group.id, len(missing))
        assignments = {**request.assignments, **dict.fromkeys(missing, b"")}
        group.effects.append(store(group, assignments, group.generation, f"assignment of {member.id}"))


def _sync_stable(group: Group, member: Member, _request: Sync, token: Any, now: Now) -> None:
    synced(group, member.id)
    result = SyncResult(Error.NONE, group.protocol_type, group.protocol, member.assignment)
    group.effects.append(Answer(token, result))
    group.alive(member, now)


SYNC: dict[State, Callable[[Group, Member, Sync, Any, Now], None]] = {
    State.EMPTY: _sync_refused(Error.UNKNOWN_MEMBER_ID),
    State.PREPARING: _sync_refused(Error.REBALANCE_IN_PROGRESS),
    State.COMPLETING: _sync_completing,
    State.STABLE: _sync_stable,
    State.DEAD: _sync_refused(Error.COORDINATOR_NOT_AVAILABLE),
}

# -- Heartbeat --------------------------------------------------------------------------------------------------

HEARTBEAT: dict[State, Error] = {
    State.EMPTY: Error.UNKNOWN_MEMBER_ID,
    State.PREPARING: Error.REBALANCE_IN_PROGRESS,
    State.COMPLETING: Error.NONE,
    State.STABLE: Error.NONE,
    State.DEAD: Error.COORDINATOR_NOT_AVAILABLE,
}


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> Error:
    """Heartbeat of a member; the error code shows whether it must join again."""
    if group.state is not State.DEAD:
        error = validate_member(group, member_id, instance_id)
        if not error and generation != group.generation:
            error = Error.ILLEGAL_GENERATION
        if error:
            return error
        group.alive(group.members[member_id], now)
    return HEARTBEAT[group.state]


# -- LeaveGroup -------------------------------------------------------------------------------------------------


def leave(group: Group, leaving: LeavingMember, now: Now) -> Error:
    """One member leaves, or an administrator removes a static member by its instance id."""
    member_id = leaving.member_id
    if not member_id:
        member_id = group.static.get(leaving.instance_id or "", "")
        if not member_id:
            return Error.UNKNOWN_MEMBER_ID
    elif member_id in group.pending:
        group.remove(member_id)
        maybe_complete_join(group, now)
        return Error.NONE
    else:
        error = validate_member(group, member_id, leaving.instance_id)
        if error:
            return error
    remove_member(group, group.members[member_id], f"{member_id} left: {leaving.reason or 'no reason given'}", now)
    return Error.NONE


# -- OffsetCommit -----------------------------------------------------------------------------------------------

COMMIT: dict[State, Error] = {
    State.EMPTY: Error.NONE,
    State.PREPARING: Error.NONE,  # so that members can commit before they join again
    State.COMPLETING: Error.REBALANCE_IN_PROGRESS,
    State.STABLE: Error.NONE,
    State.DEAD: Error.COORDINATOR_NOT_AVAILABLE,
}


def may_commit(group: Group, request: Commit, now: Now) -> Error:
    """Whether this commit may be written. While a group has members, only they may commit.

    A transactional commit without a member is also valid, as from producers before KIP-447, and in any state.
    """
    if group.state is State.DEAD:
        return COMMIT[group.state]
    if request.generation < 0 and group.state is State.EMPTY:
        return Error.NONE
    if request.generation < 0 and not request.member_id and request.instance_id is None:
        return Error.NONE if request.in_transaction else Error.UNKNOWN_MEMBER_ID
    error = validate_member(group, request.member_id, request.instance_id)
    if not error and request.generation != group.generation:
        error = Error.ILLEGAL_GENERATION
    if error:
        return error
    group.alive(group.members[request.member_id], now)
    return Error.NONE if request.in_transaction else COMMIT[group.state]
