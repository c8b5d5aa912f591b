"""ApiVersions (key 18), versions 0 to 4: the APIs that this broker serves, and their versions.

The answer is made from the rows of `workers/apis/`; it is the same for all clients and is cached. An unsupported
version is answered in version 0 with UNSUPPORTED_VERSION, so that newer clients can retry (KIP-511); the dispatcher
does that through `fallback`. Version 3 and later check the client's software name, as Kafka does. Left out: feature
versions and zero-migration fields of KRaft, which do not apply here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.protocol.responses import encoded
from odradek.workers.apis.table import load_rows, served
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Any, request: Any, context: Context) -> Any:
    """All APIs, or INVALID_REQUEST for a malformed client software name or version."""
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _response(errors.INVALID_REQUEST, None)
    config = services.config
    return _response(errors.NONE, bool(config["zookeeper.connect"]), config.get("odradek.api.versions.like", ""))


@cache
def _response(error: int, clustered: bool | None, like: str = "") -> Any:
    """`clustered` None: a response without APIs."""
    response = message_class("ApiVersionsResponse")
    row_class = response.ApiVersion
    keys = [
        row_class(api_key=row.key, min_version=row.versions[0], max_version=row.versions[1])
        for row in (() if clustered is None else served(clustered, like).values())
    ]
    return response(error_code=error, api_keys=keys, throttle_time_ms=0)


def body(clustered: bool, like: str, version: int, error: int) -> bytes:
    """The body of the answer before the client is authenticated, or with an error."""
    if error == errors.UNSUPPORTED_VERSION:
        return unsupported()
    return encoded(_response(error, clustered if error == errors.NONE else None, like), version)


@cache
def unsupported() -> bytes:
    """The body of the answer to a version that is not served."""
    response = message_class("ApiVersionsResponse")
    own = load_rows()[18].versions
    row = response.ApiVersion(api_key=18, min_version=own[0], max_version=own[1])
    return encoded(response(error_code=errors.UNSUPPORTED_VERSION, api_keys=[row]), 0)


API = Api(key=18, name="ApiVersions", versions=(0, 4), handle=handle, unsupported=unsupported)
