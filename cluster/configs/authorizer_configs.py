"""Configs that Kafka's AclAuthorizer reads on its own: they are not in Kafka's table of broker configs."""

from __future__ import annotations

from odradek.cluster.configs.configtypes import BOOLEAN, MEDIUM, STRING, ConfigKey
from odradek.security.acls.authorizer import parse_super_users

AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Values of authorizer.class.name; they all mean this broker's one, which decides as Kafka's."""


def known_authorizer(value: str) -> str | None:
    """The check of authorizer.class.name."""
    return None if not value or value in AUTHORIZERS else f"must be empty or one of {', '.join(AUTHORIZERS)}"


def _principals(value: str) -> str | None:
    try:
        parse_super_users(value)
    except ValueError as error:
        return f"{error}; a semicolon separates principals"
    return None


# fmt: off
AUTHORIZER_CONFIGS = (
    ConfigKey(
        "super.users", STRING, "", MEDIUM,
        "Principals that may do everything, whatever the ACLs say, such as User:admin;User:broker. With an authorizer, "
        "the brokers' own principal must be one of them, or have ClusterAction on the cluster.",
        check=_principals, internal=True,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found", BOOLEAN, "false", MEDIUM,
        "Whether every principal may do everything with a resource that has no ACL.",
        internal=True,
    ),
)
