"""DeleteAcls (key 31), versions 0 to 3: refuses every filter with SECURITY_DISABLED, as without an authorizer."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import SECURITY_DISABLED
from odradek.protocol.library import message_class
from odradek.workers.apis.k29_describe_acls import NO_AUTHORIZER
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context


def handle(worker: Any, request: Any, context: Context) -> Any:
    response = message_class("DeleteAclsResponse")
    refused = response.DeleteAclsFilterResult(
        error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return response(filter_results=[refused] * len(request.filters))


API = Api(key=31, name="DeleteAcls", versions=(0, 3), handle=handle)
