"""DescribeAcls (key 29), versions 0 to 3: answers SECURITY_DISABLED, as a broker without an authorizer does."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import SECURITY_DISABLED
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(worker: Any, request: Any, context: Context) -> Any:
    response = message_class("DescribeAclsResponse")
    return response(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])


API = Api(key=29, name="DescribeAcls", versions=(0, 3), handle=handle)
