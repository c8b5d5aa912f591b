"""DescribeGroups (key 15), versions 0 to 6: state, protocol and members of groups.

Only stable groups have subscriptions and assignments in the answer. A group that does not exist is "Dead" without an
error up to v5, and GROUP_ID_NOT_FOUND with a message from v6 on (KIP-1043). v3+ have the authorized operations, if the
client asks for them. A group that is named twice is answered once: a group may take a megabyte, and its name a few
bytes. Each group is one step (broker.process.steps), and so a consistent view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.groups import Summary
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api
from odradek.workers.dispatch.authorization import DESCRIBE, GROUP
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

NOT_FOUND_IS_AN_ERROR = 6


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeGroupsResponse")
    with_operations = context.version >= 3 and request.include_authorized_operations
    groups = []
    for name in dict.fromkeys(request.groups):
        if context.allows(DESCRIBE, GROUP, name):
            groups.append(_describe(response.DescribedGroup, coordinator, name, with_operations, context))
        else:
            groups.append(_denied(response.DescribedGroup, name))
        yield
    context.reply(response(groups=groups))


def _denied(group_class: Any, name: str) -> Any:
    return group_class(
        error_code=Error.GROUP_AUTHORIZATION_FAILED, error_message=None, group_id=name, group_state="",
        protocol_type="", protocol_data="", members=[],
    )  # fmt: skip


def _describe(group_class: Any, coordinator: Coordinator, name: str, with_operations: bool, context: Context) -> Any:
    error, summary = coordinator.groups.describe(name)
    operations = set(context.rights.operations(GROUP, name))
    message = None
    if error is Error.GROUP_ID_NOT_FOUND:
        message = f"Group {name} not found."
        error = error if context.version >= NOT_FOUND_IS_AN_ERROR else Error.NONE
    return group_class(
        error_code=error,
        error_message=message,
        group_id=name,
        group_state=summary.state,
        protocol_type=summary.protocol_type,
        protocol_data=summary.protocol,
        members=_members(group_class.DescribedGroupMember, summary),
        **({"authorized_operations": operations} if with_operations and not error else {}),
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
