"""DescribeGroups (key 15), versions 0 to 6: state, protocol and members of groups.

Only stable groups have subscriptions and assignments in the answer. A group that does not exist is "Dead" without an
error up to v5, and GROUP_ID_NOT_FOUND with a message from v6 on (KIP-1043). Without an authorizer a client that asks
for its authorized operations (v3+) gets all of them. A group that is named twice is answered once: a group may take a
megabyte, and its name a few bytes. Each group is one step (broker.process.steps), and so a consistent view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.groups import Summary
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

NOT_FOUND_IS_AN_ERROR = 6
READ, DELETE, DESCRIBE = 3, 6, 8  # all operations on a group; the library makes them a bit field


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeGroupsResponse")
    with_operations = context.version >= 3 and request.include_authorized_operations
    groups = []
    for name in dict.fromkeys(request.groups):
        groups.append(_describe(response.DescribedGroup, coordinator, name, with_operations, context.version))
        yield
    context.reply(response(groups=groups))


def _describe(group_class: Any, coordinator: Coordinator, name: str, with_operations: bool, version: int) -> Any:
    error, summary = coordinator.groups.describe(name)
    message = None
    if error is Error.GROUP_ID_NOT_FOUND:
        message = f"Group {name} not found."
        error = error if version >= NOT_FOUND_IS_AN_ERROR else Error.NONE
    return group_class(
        error_code=error,
        error_message=message,
        group_id=name,
        group_state=summary.state,
        protocol_type=summary.protocol_type,
        protocol_data=summary.protocol,
        members=_members(group_class.DescribedGroupMember, summary),
        **({"authorized_operations": {READ, DELETE, DESCRIBE}} if with_operations and not error else {}),
    )


def _members(member_class: Any, summary: Summary) -> list[Any]:
    stable = bool(summary.protocol)
    return [
        member_class(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(summary.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in summary.members
    ]


API = Api(key=15, name="DescribeGroups", versions=(0, 6), runs_in=COORDINATOR, handle=handle)
