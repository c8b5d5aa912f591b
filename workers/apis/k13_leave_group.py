"""LeaveGroup (key 13), versions 0 to 5: one member leaves, or (v3+) many, static ones also by instance id alone.

v5 says why. Up to v2 the member's error is the response's.
"""

from __future__ import annotations

from typing import Any

from odradek.groups.events import LeaveResult, Leaving
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import Coordinator

MANY = 3


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    version = context.version
    if version < MANY:
        members = [Leaving(request.member_id)]
    else:
        members = [
            Leaving(member.member_id, member.group_instance_id, member.reason if version >= 5 else None)
            for member in request.members
        ]
    result = coordinator.groups.leave(request.group_id, members, coordinator.now)
    return _response(result, version)


def _response(result: LeaveResult, version: int) -> Any:
    response = message_class("LeaveGroupResponse")
    error = result.error
    if version < MANY and not error:
        error = result.members[0][1]
    members = [
        response.MemberResponse(
            member_id=leaving.member_id, group_instance_id=leaving.instance_id, error_code=member_error
        )
        for leaving, member_error in result.members
    ]
    return response(error_code=error, members=members)


API = Api(key=13, name="LeaveGroup", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
