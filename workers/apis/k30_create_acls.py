"""CreateAcls (key 30), versions 0 to 3: refuses each with SECURITY_DISABLED, as a broker without an authorizer does."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import SECURITY_DISABLED
from odradek.protocol.library import message_class
from odradek.workers.apis.k29_describe_acls import NO_AUTHORIZER
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context


def handle(worker: Any, request: Any, context: Context) -> Any:
    response = message_class("CreateAclsResponse")
    refused = response.AclCreationResult(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return response(results=[refused] * len(request.creations))


API = Api(key=30, name="CreateAcls", versions=(0, 3), handle=handle)
