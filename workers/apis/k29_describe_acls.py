"""DescribeAcls (key 29), versions 0 to 3: the ACLs that a filter finds, those of a resource pattern together.

Without an authorizer it is refused with SECURITY_DISABLED. Versions below 1 know only literal patterns.
"""

from __future__ import annotations

from typing import Any

from odradek.security.acls import acl_requests
from odradek.workers.dispatch.acl_changes import CheckedCodec
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Any:
    """Needs Describe on the cluster."""
    if not controller.authorization.enabled:
        return acl_requests.refuse_describe(*acl_requests.NO_AUTHORIZER_TO_DESCRIBE)
    return acl_requests.describe(controller.owner.acls, request)


API = Api(
    key=29, name="DescribeAcls", versions=(0, 3), runs_in=CONTROLLER, handle=handle,
    codec=CheckedCodec("DescribeAcls", acl_requests.check_describe),
)  # fmt: skip
