"""AlterUserScramCredentials (key 51), version 0: sets and deletes what SCRAM authenticates users by (KIP-554).

The elected controller answers, when its workers know the change; other brokers learn it from the tree. The request has
salted passwords, never passwords; nothing of it is logged but users and mechanisms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.protocol.library import message_class
from odradek.security.sasl import scram_admin
from odradek.security.sasl.scram_admin import Altered, Deletion, Upsertion
from odradek.workers.dispatch import user_requests
from odradek.workers.dispatch.administration import Controller, attempt
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
        for each in request.upsertions
    ]
    yield
    users = {each.name for each in (*request.deletions, *request.upsertions)}
    try:
        controller.owner.require_controller()
        known = (yield from user_requests.known(controller, sorted(users))) if users else {}
    except ApiError as error:
        context.reply(_response((user, error.code, error.message) for user in sorted(users)))
        return
    results, changes = yield from scram_admin.altering(deletions, upsertions, known)
    rows = []
    for result in results:
        rows.append(_row(controller, result, changes))
        if not rows[-1][1]:
            context.changed(f"changed SCRAM credentials of user {result.user}")
        yield
    controller.when_published(lambda: context.reply(_response(rows)))


def _row(controller: Controller, result: Altered, changes: scram_admin.Changes) -> tuple[str, int, str]:
    """Carry out a user's changes, if they are allowed."""
    if result.error:
        return result.user, result.error, result.text
    code, message = attempt(lambda: controller.owner.users.alter(result.user, changes[result.user]))
    return result.user, code, message or ""


def _response(rows: Any) -> Any:
    response = message_class("AlterUserScramCredentialsResponse")
    result = response.AlterUserScramCredentialsResult
    made = [result(user=user, error_code=code, error_message=message) for user, code, message in rows]
    return response(results=made)


API = Api(key=51, name="AlterUserScramCredentials", versions=(0, 0), runs_in=CONTROLLER, handle=handle)
