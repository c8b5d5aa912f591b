"""DescribeUserScramCredentials (key 50), version 0: there are none, as there is no authentication yet (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from odradek.protocol.errors import DUPLICATE_RESOURCE, NONE, RESOURCE_NOT_FOUND
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context


def handle(worker: Any, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeUserScramCredentialsResponse")
    result = response.DescribeUserScramCredentialsResult
    results = []
    for user, times in Counter(user_name.name for user_name in request.users or ()).items():
        code, message = _refusal(user, times)
        results.append(result(user=user, error_code=code, error_message=message, credential_infos=[]))
        yield
    context.reply(response(error_code=NONE, error_message=None, results=results))


def _refusal(user: str, times: int) -> tuple[int, str]:
    if times > 1:
        return (
            DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    return RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}"


API = Api(key=50, name="DescribeUserScramCredentials", versions=(0, 0), handle=handle)
