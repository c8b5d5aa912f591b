"""DeleteAcls (key 31), versions 0 to 3: deletes the ACLs that filters find, and answers with them.

Any broker of a cluster deletes them from the tree. Without an authorizer it is refused with SECURITY_DISABLED.
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
    return acl_changes.change(controller, request, context, acl_requests.delete, acl_requests.refuse_delete)


API = Api(
    key=31, name="DeleteAcls", versions=(0, 3), runs_in=CONTROLLER, handle=handle,
    codec=acl_changes.CheckedCodec("DeleteAcls", acl_requests.check_delete),
)  # fmt: skip
