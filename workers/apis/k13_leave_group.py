"""LeaveGroup (key 13), versions 0 to 5: one member leaves, or (v3+) many, static ones also by instance id alone.

v5 has a reason. Up to v2 the member's error is the response's. Many members take many steps (broker.process.steps).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from odradek.groups.events import LeavingMember
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import GROUP, READ
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

MANY = 3


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    version = context.version
    if not context.allows(READ, GROUP, request.group_id):
        denied = Error.GROUP_AUTHORIZATION_FAILED
        context.reply(message_class("LeaveGroupResponse")(error_code=denied, members=[]))
        return
    rows: list[Any] = []
    error = Error.NONE
    for some in [*pieces(request.members if version >= MANY else [request])] or [()]:
        result = coordinator.groups.leave(request.group_id, _leaving(some, version), coordinator.now)
        error = result.error
        if error:
            rows.clear()
            break
        if version < MANY:
            error = result.members[0][1]
        rows += [_row(*member) for member in result.members]
        yield
    context.reply(message_class("LeaveGroupResponse")(error_code=error, members=rows))


def _leaving(members: Sequence[Any], version: int) -> list[LeavingMember]:
    if version < MANY:
        return [LeavingMember(member.member_id) for member in members]
    return [
        LeavingMember(member.member_id, member.group_instance_id, member.reason if version >= 5 else None)
        for member in members
    ]


def _row(leaving: LeavingMember, error: Error) -> Any:
    return message_class("LeaveGroupResponse").MemberResponse(
        member_id=leaving.member_id, group_instance_id=leaving.instance_id, error_code=error
    )


API = Api(key=13, name="LeaveGroup", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
