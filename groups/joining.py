"""JoinGroup: new members, rejoining members, and static members that return with a new member id.

KIP-394: a dynamic member first gets an id, and counts only when it joins with that id.
KIP-345: a static member that restarts takes its old place without a rebalance; clients that still use the old
member id are fenced. KIP-814: since JoinGroup v9, a returning static leader learns that it leads but need not assign.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.groups.errors import for_store
from odradek.groups.events import Answer, Append, Join, JoinResult, Now, Protocols, SyncResult
from odradek.groups.group import Group, State
from odradek.groups.member import Member
from odradek.groups.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    maybe_complete_join,
    maybe_prepare,
    prepare,
)
from odradek.groups.records import group_key, group_value
from odradek.protocol.errors import Error
from odradek.protocol.wire import LONGEST_STRING

LONGEST_NAME = LONGEST_STRING - len("-") - len(str(uuid.UUID(int=0)))


def new_member_id(request: Join) -> str:
    """A unique id: instance id or client id, truncated to fit a protocol string, a dash, a random UUID."""
    name = (request.instance_id or request.client_id).encode("utf-8", "surrogateescape")[:LONGEST_NAME]
    return f"{name.decode('utf-8', 'ignore')}-{uuid.uuid4()}"


def join(group: Group, request: Join, token: Any, now: Now, make_id: Callable[[Join], str] = new_member_id) -> None:
    """Let a member join the next generation. Answers at once or when the rebalance completes.

    Of a protocol that occurs twice in the request, the first one counts.
    """
    request = request._replace(protocols=_distinct(request.protocols))
    error, member_id = _refusal(group, request)
    if error:
        group.effects.append(Answer(token, JoinResult(error, member_id)))
    elif not request.member_id:
        _join_new(group, request, token, now, make_id(request))
    elif request.member_id in group.pending:
        _add(group, request, token, now, request.member_id)
    else:
        _join_known(group, request, token, now)
    maybe_complete_join(group, now)


def _distinct(protocols: Protocols) -> Protocols:
    first: dict[str, bytes] = {}
    for name, metadata in protocols:
        first.setdefault(name, metadata)
    return tuple(first.items())


def _refusal(group: Group, request: Join) -> tuple[Error, str]:
    """Why this member cannot join, and the member id for the response."""
    if not group.accepts(request.member_id):
        group.remove(request.member_id, Error.GROUP_MAX_SIZE_REACHED)
        return Error.GROUP_MAX_SIZE_REACHED, ""
    if group.state is State.DEAD:
        return Error.COORDINATOR_NOT_AVAILABLE, request.member_id
    if not group.supports(request.protocol_type, request.protocols):
        return Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id
    if request.member_id in group.pending and request.instance_id is not None:
        return Error.UNKNOWN_SERVER_ERROR, request.member_id  # the id belongs to a dynamic member; as in Kafka
    return Error.NONE, request.member_id


def validate_member(group: Group, member_id: str, instance_id: str | None) -> Error:
    """FENCED_INSTANCE_ID when the instance id now belongs to another member, UNKNOWN_MEMBER_ID, or NONE."""
    if instance_id is not None:
        owner = group.static.get(instance_id)
        if owner is None:
            return Error.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return Error.FENCED_INSTANCE_ID
    return Error.NONE if member_id in group.members else Error.UNKNOWN_MEMBER_ID


# -- new members ------------------------------------------------------------------------------------------------


def _join_new(group: Group, request: Join, token: Any, now: Now, member_id: str) -> None:
    known = group.static.get(request.instance_id) if request.instance_id is not None else None
    if known is not None:
        _replace_static(group, request, token, now, group.members[known], member_id)
    elif request.require_member_id and request.instance_id is None:
        group.pending.add(member_id)
        group.timers.set((group.id, "pending", member_id), now.steady_ms + request.session_timeout_ms)
        group.effects.append(Answer(token, JoinResult(Error.MEMBER_ID_REQUIRED, member_id)))
    else:
        _add(group, request, token, now, member_id)


def _add(group: Group, request: Join, token: Any, now: Now, member_id: str) -> None:
    if group.state is State.PREPARING and group.generation == 0:
        group.member_added = True
    group.timers.cancel((group.id, "pending", member_id))
    member = Member.joining(member_id, request)
    group.add(member, token, request.protocol_type)
    group.alive(member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
    maybe_prepare(group, f"new member {member_id}: {request.reason or 'no reason given'}", now)


# -- known members ----------------------------------------------------------------------------------------------


def _join_known(group: Group, request: Join, token: Any, now: Now) -> None:
    error = validate_member(group, request.member_id, request.instance_id)
    if error:
        group.effects.append(Answer(token, JoinResult(error, request.member_id)))
    else:
        KNOWN[group.state](group, group.members[request.member_id], request, token, now)


def _rejoin(group: Group, member: Member, request: Join, token: Any, now: Now) -> None:
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.wait_join(member, token)
    maybe_prepare(group, f"member {member.id} rejoined: {request.reason or 'no reason given'}", now)


def _join_completing(group: Group, member: Member, request: Join, token: Any, now: Now) -> None:
    if member.protocols == request.protocols:  # it did not get the answer: repeat it
        group.effects.append(Answer(token, group.current(member)))
    else:
        _rejoin(group, member, request, token, now)


def _join_stable(group: Group, member: Member, request: Join, token: Any, now: Now) -> None:
    """The leader may start a rebalance (after new partitions, say); others only by a new subscription."""
    if group.leader == member.id or member.protocols != request.protocols:
        _rejoin(group, member, request, token, now)
    else:
        group.effects.append(Answer(token, group.current(member)))


def _join_gone(group: Group, member: Member, _request: Join, token: Any, _now: Now) -> None:
    group.effects.append(Answer(token, JoinResult(Error.UNKNOWN_MEMBER_ID, member.id)))


KNOWN: dict[State, Callable[[Group, Member, Join, Any, Now], None]] = {
    State.EMPTY: _join_gone,
    State.PREPARING: _rejoin,
    State.COMPLETING: _join_completing,
    State.STABLE: _join_stable,
    State.DEAD: _join_gone,
}


# -- returning static members -----------------------------------------------------------------------------------


def _replace_static(group: Group, request: Join, token: Any, now: Now, member: Member, new_id: str) -> None:
    """A static member returns without its member id: fence the old id, keep the place."""
    before = (member.id, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    told_leader = group.leader
    _fence(group, member)
    group.rename(member, new_id)
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    group.wait_join(member, token)
    group.alive(member, now)
    if group.state is State.COMPLETING:  # the leader may be assigning to the old id
        prepare(group, f"static member {request.instance_id} came back during the assignment", now)
    elif group.state is State.STABLE:
        if group.select_protocol() == group.protocol:
            done = partial(_static_stored, group, member, request, token, before, told_leader, group.generation)
            assignments = {m.id: m.assignment for m in group.members.values()}
            group.effects.append(Append(group.id, [(group_key(group.id), group_value(group.value(assignments)))], done))
        else:
            maybe_prepare(group, f"static member {request.instance_id} rejoined with another protocol", now)


def _fence(group: Group, member: Member) -> None:
    group.answer_join(member, JoinResult(Error.FENCED_INSTANCE_ID, member.id))
    group.answer_sync(member, SyncResult(Error.FENCED_INSTANCE_ID))


def _static_stored(
    group: Group,
    member: Member,
    request: Join,
    token: Any,
    before: tuple[str, Any, int, int],
    told_leader: str | None,
    generation: int,
    error: Error,
    _position: int,
    now: Now,
) -> None:
    """Answer the member once its new id is in the log; restore the old id if the append failed."""
    if group.members.get(member.id) is not member:
        return  # removed meanwhile, and answered
    if group.state is not State.STABLE or group.generation != generation:
        return  # a rebalance started: the waiting JoinGroup counts for that one
    if member.join is not token:
        return  # the instance returned again: an append of another id is under way
    if error:
        _restore_static(group, member, before, told_leader, for_store(error), now)
        return
    group.alive(member, now)  # its session may have expired during the append
    if request.can_skip_assignment:
        group.answer_join(member, group.current(member, skip_assignment=group.leader == member.id))
    else:  # an older client that sees itself as leader would send an assignment, which no member would get
        group.answer_join(member, group.current(member, leader=told_leader))


def _restore_static(
    group: Group, member: Member, before: tuple[str, Any, int, int], told_leader: str | None, error: Error, now: Now
) -> None:
    result = group.current(member)._replace(error=error, member_id="", leader=told_leader or "", members=())
    group.answer_join(member, result)
    group.rename(member, before[0])
    group.update(member, *before[1:])
    group.alive(member, now)
