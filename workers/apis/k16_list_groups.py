"""ListGroups (key 16), versions 0 to 5: the groups of this broker.

v4+ filters by state (KIP-518), v5 by type (KIP-848).
While partitions of `__consumer_offsets` are loading the list is incomplete, with COORDINATOR_LOAD_IN_PROGRESS.
All groups have the type "classic". Who may not describe the cluster sees the groups that it may describe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.groups import Summary
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE, GROUP
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """Takes one consistent list of the groups, and makes its rows in steps (broker.process.steps)."""
    response = message_class("ListGroupsResponse")
    states = (request.states_filter or ()) if context.version >= 4 else ()
    types = (request.types_filter or ()) if context.version >= 5 else ()
    found = coordinator.groups.listing(states, types)
    error = Error.COORDINATOR_LOAD_IN_PROGRESS if coordinator.groups.is_loading else Error.NONE
    sees_all = context.sees(DESCRIBE, CLUSTER)
    groups = []
    for piece in pieces(found):
        yield
        seen = piece if sees_all else [group for group in piece if context.sees(DESCRIBE, GROUP, group.id)]
        groups += [_row(response.ListedGroup, group) for group in seen]
    context.reply(response(error_code=error, groups=groups))


def _row(row_class: Any, group: Summary) -> Any:
    return row_class(
        group_id=group.id, protocol_type=group.protocol_type, group_state=group.state, group_type="classic"
    )


API = Api(key=16, name="ListGroups", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
