"""DescribeUserScramCredentials (key 50), version 0: the mechanisms and iterations of users (KIP-554).

Any broker answers, from the metadata tree, so that a change through another broker is seen at once, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import NONE
from odradek.protocol.library import message_class
from odradek.security.sasl import scram_admin
from odradek.security.sasl.scram_admin import Described
from odradek.workers.dispatch import user_requests
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeUserScramCredentialsResponse")
    users = [user.name for user in request.users or ()]
    yield
    try:
        known = yield from user_requests.known(controller, users)
    except ApiError as error:
        context.reply(response(error_code=error.code, error_message=error.message, results=[]))
        return
    results = []
    for described in scram_admin.describing(users, known):
        results.append(_result(response, described))
        yield
    context.reply(response(error_code=NONE, error_message="", results=results))


def _result(response: Any, described: Described) -> Any:
    result = response.DescribeUserScramCredentialsResult
    return result(
        user=described.user,
        error_code=described.error,
        error_message=described.text,
        credential_infos=[
            result.CredentialInfo(mechanism=mechanism, iterations=iterations)
            for mechanism, iterations in described.credentials
        ],
    )


API = Api(key=50, name="DescribeUserScramCredentials", versions=(0, 0), runs_in=CONTROLLER, handle=handle)
