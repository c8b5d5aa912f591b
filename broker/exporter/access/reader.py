"""The reader of a page: a user of the broker with the rights that its ACLs give, or everyone where none is asked for.

What a reader may not see is left out. What it asks for by name is refused in the same line whether it exists or not,
and the refusal goes to the audit log.
"""

from __future__ import annotations

import shlex

from odradek.broker.exporter.access.refused import Refused
from odradek.security.acls.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.workers.dispatch.audit import REFUSALS
from odradek.workers.dispatch.authorization import CLUSTER, EVERYTHING, Rights

_OPTIONS = {ResourceType.TOPIC: "--topic", ResourceType.GROUP: "--group"}


class Reader:
    """One user at one host, with the ACLs of one version."""

    def __init__(self, rights: Rights, user: str = "") -> None:
        """`user`: its principal; empty where no user is asked for."""
        self._rights, self.user = rights, user

    @property
    def sees_all(self) -> bool:
        """Whether no ACL bounds it."""
        return self._rights.session is None or self._rights.session.is_super_user

    def sees(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it has a right."""
        return self._rights.sees(operation, kind, name)

    def require(self, what: str, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises Refused without the right that `what` needs."""
        if self.sees(operation, kind, name):
            return
        REFUSALS.log(self.user, self._rights.host, operation, kind, name, f"exporter: {what}")
        raise Refused(403, self.needs(what, operation, kind, name))

    def needs(self, what: str, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> str:
        """The line that says which right is missing, and how to give it."""
        where = "the cluster" if kind == CLUSTER else f"{kind.title.lower()} {name}"
        of = "--cluster" if kind == CLUSTER else f"{_OPTIONS[kind]} {shlex.quote(name)}"
        given = f"--allow-principal {shlex.quote(self.user)} --operation {operation.title} {of}"
        return f"{what}: {self.user} needs {operation.title} on {where}: odradek acls --add {given}"


EVERYONE = Reader(EVERYTHING)
"""Where no user is asked for."""
