"""JoinGroup (key 11), versions 0 to 9: the classic group protocol.

v0 has one timeout for session and rebalance; v4+ must join again with the id received at the first join (KIP-394);
v5+ have static members (KIP-345), v8+ a reason, v9 lets a returning static leader skip the assignment (KIP-814).
Answered when the rebalance is complete, or at once with an error.
"""

from __future__ import annotations

from typing import Any

from odradek.groups.events import Join, JoinResult
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import GROUP, READ
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator, client_host


def handle(coordinator: Coordinator, request: Any, context: Context) -> None:
    version = context.version

    def answer(result: JoinResult) -> None:
        context.reply(_response(result, version))

    if not context.allows(READ, GROUP, request.group_id):
        answer(JoinResult(Error.GROUP_AUTHORIZATION_FAILED, ""))
        return
    coordinator.groups.join(_join(request, context), answer, coordinator.now)


def _join(request: Any, context: Context) -> Join:
    version = context.version
    instance_id = request.group_instance_id if version >= 5 else None
    return Join(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=context.client_id or "",
        client_host=client_host(context),
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        require_member_id=version >= 4 and instance_id is None,
        can_skip_assignment=version >= 9,
        reason=request.reason if version >= 8 else None,
    )


def _response(result: JoinResult, version: int) -> Any:
    response = message_class("JoinGroupResponse")
    members = [
        response.JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
        for member_id, instance_id, metadata in result.members
    ]
    return response(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=(result.protocol or "") if version < 7 else result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=members,
    )


API = Api(key=11, name="JoinGroup", versions=(0, 9), runs_in=COORDINATOR, handle=handle)
