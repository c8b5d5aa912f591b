"""What the sender of a request may do, as a process decides it from the ACLs that it has.

Each process that handles requests has one Authorization, which follows the security metadata. Without
authorizer.class.name everyone may do everything, and nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.cluster.metadata.security_metadata import NO_SECURITY_METADATA, SecurityMetadata
from odradek.security.acls.acl_types import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from odradek.security.acls.api_checks import ERRORS, ROWS, guards
from odradek.security.acls.authorizer import MOST, Authorizer, Session, parse_super_users
from odradek.security.principal import ANONYMOUS, USER, Principal
from odradek.workers.dispatch.audit import REFUSALS

if TYPE_CHECKING:
    from odradek.workers.dispatch.api import Api
    from odradek.workers.net.connection import Connection

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE

_TOPIC_CONFIGS = 2  # the type of a topic as a resource that has configs


class Rights:
    """What one principal at one host may do, with the ACLs of one version. `session` None: everything."""

    __slots__ = ("host", "principal", "session")

    def __init__(self, principal: str, host: str, session: Session | None = None) -> None:
        self.principal = principal
        self.host = host
        self.session = session

    def sees(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether an operation is allowed; for what an answer omits if it is not."""
        return self.session is None or self.session.allows(operation, kind, name)

    def allows(self, api: int, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether an operation, which the client requests by this API, is allowed; a refusal goes to the audit log."""
        if self.session is None or self.session.allows(operation, kind, name):
            return True
        REFUSALS.log(self.principal, self.host, operation, kind, name, ROWS[api].name)
        return False

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether an operation is allowed on any resource of the type."""
        return self.session is None or self.session.allows_any(operation, kind)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> frozenset[int]:
        """The operations that are allowed on a resource (KIP-430)."""
        return frozenset(operation for operation in SUPPORTED[kind] if self.sees(operation, kind, name))


EVERYTHING = Rights(str(ANONYMOUS), "")
"""Without an authorizer."""


class Authorization:
    """The rights of all clients, as the ACLs of one version give them."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.enabled = bool(config.get("authorizer.class.name"))
        self._super_users = parse_super_users(config.get("super.users") or "")
        self._allow_everyone = bool(config.get("allow.everyone.if.no.acl.found"))
        self._security = NO_SECURITY_METADATA
        self._authorizer: Authorizer | None = None  # made when it is first asked
        self._rights: dict[tuple[str, str], Rights] = {}

    def adopt(self, security: SecurityMetadata) -> None:
        """Decide by these ACLs from now on."""
        self._security, self._authorizer = security, None
        self._rights.clear()

    def of(self, principal: str, host: str) -> Rights:
        """The rights of a principal, `User:alice`, at a host."""
        if not self.enabled:
            return EVERYTHING
        found = self._rights.get((principal, host))
        if found is None:
            if len(self._rights) >= MOST:
                self._rights.clear()
            session = self._decider().session(_principal(principal), host)
            found = self._rights[principal, host] = Rights(principal, host, session)
        return found

    def _decider(self) -> Authorizer:
        if self._authorizer is None:
            security = self._security
            self._authorizer = Authorizer(security.acls, self._super_users, self._allow_everyone, security.version)
        return self._authorizer

    def of_connection(self, connection: Connection) -> Rights:
        """The rights of the client at the other end."""
        return self.of(str(connection.principal), connection.host) if self.enabled else EVERYTHING

    def readable(self, connection: Connection) -> Mapping[str, bool] | None:
        """Whether the client may read a topic, by name; None without an authorizer."""
        session = self.of_connection(connection).session
        return None if session is None else session.decisions(READ, TOPIC)

    def knows(self, principal: str) -> bool:
        """Whether ACLs say what this principal may do between brokers; else the address of its host has to."""
        return self.enabled and principal != str(ANONYMOUS)


def _principal(text: str) -> Principal:
    kind, colon, name = text.partition(":")
    return Principal(kind, name) if colon else Principal(USER, text)


def config_resource(kind: int, name: str) -> tuple[ResourceType, str]:
    """On which resource a client needs a right for the configs of a resource: the topic, else the cluster."""
    return (TOPIC, name) if kind == _TOPIC_CONFIGS else (CLUSTER, CLUSTER_NAME)


def config_refusal(kind: int) -> int:
    """The error of a client that does not have it."""
    return ERRORS[config_resource(kind, "")[0]]


def guarded(row: Api, version: int, rights: Rights) -> int:
    """The error of a request that lacks the right on the cluster which its API demands; else 0."""
    if rights.session is None:
        return 0
    for check in guards(row.key, version):
        if not any(rights.sees(right.operation, right.resource) for right in check.rights):
            REFUSALS.log(rights.principal, rights.host, check.rights[0].operation, CLUSTER, CLUSTER_NAME, row.name)
            return check.error
    return 0
