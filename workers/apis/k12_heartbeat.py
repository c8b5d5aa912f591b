"""Heartbeat (key 12), versions 0 to 4: a member is alive, and learns whether it must join again.

v3+ have static members.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import GROUP, READ
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    if not context.allows(READ, GROUP, request.group_id):
        return message_class("HeartbeatResponse")(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    instance_id = request.group_instance_id if context.version >= 3 else None
    error = coordinator.groups.heartbeat(
        request.group_id, request.member_id, instance_id, request.generation_id, coordinator.now
    )
    return message_class("HeartbeatResponse")(error_code=error)


API = Api(key=12, name="Heartbeat", versions=(0, 4), runs_in=COORDINATOR, handle=handle)
