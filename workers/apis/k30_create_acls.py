"""CreateAcls (key 30), versions 0 to 3: adds ACLs; each one that is not valid is refused on its own.

Any broker of a cluster writes them into the tree. Without an authorizer it is refused with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.security.acls import acl_requests
from odradek.workers.dispatch import acl_changes
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    """Needs Alter on the cluster. Answered when every live worker decides by the new ACLs."""
    return acl_changes.change(controller, request, context, acl_requests.create, acl_requests.refuse_create)


API = Api(
    key=30, name="CreateAcls", versions=(0, 3), runs_in=CONTROLLER, handle=handle,
    codec=acl_changes.CheckedCodec("CreateAcls", acl_requests.check_create),
)  # fmt: skip
