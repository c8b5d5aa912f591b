"""DescribeUserScramCredentials (key 50), version 0: no user has any, as there is no authentication yet (KIP-554)."""

from __future__ import annotations

from typing import Any

from odradek.cluster.errors import RESOURCE_NOT_FOUND
from odradek.protocol.errors import NONE
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context


def handle(worker: Any, request: Any, context: Context) -> Any:
    response = message_class("DescribeUserScramCredentialsResponse")
    result = response.DescribeUserScramCredentialsResult
    results = [
        result(
            user=asked.name,
            error_code=RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {asked.name}",
            credential_infos=[],
        )
        for asked in request.users or ()
    ]
    return response(error_code=NONE, results=results)


API = Api(key=50, name="DescribeUserScramCredentials", versions=(0, 0), handle=handle)
