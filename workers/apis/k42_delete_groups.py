"""DeleteGroups (key 42), versions 0 to 2: delete groups without members, with their offsets.

Answered when the tombstones of all groups are in `__consumer_offsets`. Many groups are deleted in steps
(broker.process.steps).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, PIECE, Api, pieces
from odradek.workers.dispatch.authorization import DELETE, GROUP
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import Coordinator

DENIED = Error.GROUP_AUTHORIZATION_FAILED


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    names = list(dict.fromkeys(request.groups_names))
    if not names:
        return _response([], {})
    deletion = _delete(coordinator, names, context)
    if len(names) > PIECE:
        return deletion
    for _ in deletion:  # delete few groups at once: the coordinator's queue is for long work
        pass
    return None


def _delete(coordinator: Coordinator, names: list[str], context: Context) -> Iterator[None]:
    errors = {name: DENIED for name in names if not context.allows(DELETE, GROUP, name)}
    if len(errors) == len(names):
        context.reply(_response(names, errors))
        return

    denied = frozenset(errors)

    def deleted(name: str, error: Error) -> None:
        errors[name] = error
        if len(errors) == len(names):
            context.reply(_response(names, errors))

    for piece in pieces(names):
        for name in [name for name in piece if name not in denied]:
            coordinator.groups.delete_group(name, partial(deleted, name), coordinator.now)
        yield


def _response(names: list[str], errors: dict[str, Error]) -> Any:
    response = message_class("DeleteGroupsResponse")
    return response(results=[response.DeletableGroupResult(group_id=name, error_code=errors[name]) for name in names])


API = Api(key=42, name="DeleteGroups", versions=(0, 2), runs_in=COORDINATOR, handle=handle)
