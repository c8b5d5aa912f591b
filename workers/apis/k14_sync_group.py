"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, members receive their part of it.

Answered when the assignment is in `__consumer_offsets`. v3+: static members; v5: the protocol is
named and checked (KIP-559).
"""

from __future__ import annotations

from typing import Any

from odradek.groups.events import Sync, SyncResult
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import GROUP, READ
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

NAMED = 5  # protocol type and name


def handle(coordinator: Coordinator, request: Any, context: Context) -> None:
    def answer(result: SyncResult) -> None:
        context.reply(_response(result))

    if context.version >= NAMED and None in (request.protocol_type, request.protocol_name):
        answer(SyncResult(Error.INCONSISTENT_GROUP_PROTOCOL))
        return
    if not context.allows(READ, GROUP, request.group_id):
        answer(SyncResult(Error.GROUP_AUTHORIZATION_FAILED))
        return
    coordinator.groups.sync(_sync(request, context.version), answer, coordinator.now)


def _sync(request: Any, version: int) -> Sync:
    return Sync(
        group=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id if version >= 3 else None,
        protocol_type=request.protocol_type if version >= NAMED else None,
        protocol=request.protocol_name if version >= NAMED else None,
        assignments={part.member_id: bytes(part.assignment) for part in request.assignments},
    )


def _response(result: SyncResult) -> Any:
    return message_class("SyncGroupResponse")(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


API = Api(key=14, name="SyncGroup", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
