"""A cluster with TLS, SASL and ACLs: the settings of its brokers, its users and their rights, and its clients.

Clients reach brokers over SASL_SSL at the listener CLIENT, brokers each other at INTERNAL by the protocol and mechanism
of the run. The listener PLAINTEXT is for checks whether a broker runs: its clients have no rights. The
administrator and the brokers are super users, LOAD has exactly the ACLs that the load needs, OUTSIDER has none.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.commands.tls import certificates
from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol.library import message_class
from odradek.security.acls.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.security.sasl import scram_keys
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism

from ...harness.broker import Broker
from ...harness.process import free_port, wait_until
from ...harness.wire import Wire
from ...harness.zookeeper import ZooKeeper
from ...security.tls.conftest import private
from ..users.sasl_wire import authenticate

BROKER, ADMIN, LOAD, OUTSIDER = USERS = ("broker", "admin", "load", "outsider")
TOPICS = ("load", "unclean", "again", "grown")  # prefixes of topic names
GROUPS = ("group-", "tail-", "all-", *TOPICS)  # librdkafka looks for the coordinator in any case
SECONDS = 60


class Clients(NamedTuple):
    """The settings by which clients of each library reach the cluster."""

    librdkafka: Mapping[str, Any]
    kafka_python: Mapping[str, Any]

    @classmethod
    def of(cls, bootstrap: str) -> Clients:
        """Settings without security."""
        return cls({"bootstrap.servers": bootstrap}, {"bootstrap_servers": bootstrap.split(",")})


class Security:
    """The security of a cluster of `hosts`; `between`: PROTOCOL or PROTOCOL/MECHANISM between its brokers.

    Clients authenticate by the same mechanism, or by SCRAM-SHA-512 if brokers use certificates.
    """

    def __init__(self, folder: Path, between: str, hosts: Iterable[str]) -> None:
        self.between = between
        self.protocol, _, mechanism = between.partition("/")
        self.mechanism = mechanism or "SCRAM-SHA-512"
        now = datetime.datetime.now(datetime.UTC)
        ca = certificates.new_ca(now)
        pair = certificates.issue(ca, "broker", [*hosts], now, 9)
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = private(folder / "ca.pem", ca.certificate_pem)
        self._pem = private(folder / "broker.pem", pair.key_pem + pair.certificate_pem)
        self._context = ssl.create_default_context(cafile=self._ca)
        self._addresses: dict[str, str] = {}  # by the address of PLAINTEXT

    # -- brokers

    def settle(self, broker: Broker) -> None:
        """Set the broker's security properties; its host is known."""
        self._addresses[broker.bootstrap] = f"{broker.host}:{free_port()}"
        ends = {"PLAINTEXT": broker.bootstrap, "CLIENT": self._addresses[broker.bootstrap]}
        ends["INTERNAL"] = f"{broker.host}:{free_port()}"
        broker.properties |= self._properties() | {
            "listeners": ",".join(f"{name}://{address}" for name, address in ends.items()),
        }
        broker.folder.mkdir(parents=True, exist_ok=True)
        broker.properties_file.touch(0o600)

    def _properties(self) -> dict[str, Any]:
        mechanism = self.mechanism.lower()
        return {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CLIENT:SASL_SSL,INTERNAL:{self.protocol}",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._ca,
            "listener.name.internal.ssl.client.auth": "required" if self.protocol == "SSL" else "none",
            "sasl.enabled.mechanisms": self.mechanism,
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            f"listener.name.client.{mechanism}.sasl.jaas.config": self._jaas(),
            f"listener.name.internal.{mechanism}.sasl.jaas.config": self._jaas(),
            "connections.max.reauth.ms": 20_000,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMIN};User:CN=broker",
        }

    def _jaas(self) -> str:
        kind = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        users = "".join(f' user_{user}="{password(user)}"' for user in USERS) if self.mechanism == "PLAIN" else ""
        login = f'username="{BROKER}" password="{password(BROKER)}"'
        return f"org.apache.kafka.common.security.{kind}LoginModule required {login}{users};"

    def add_users(self, zookeeper: ZooKeeper) -> None:
        """Add SCRAM users, before the first broker starts."""
        with closing(ZooKeeperTree(zookeeper.connect)) as tree:
            tree.ensure(znodes.USER_CONFIGS)
            for user in USERS:
                tree.create(f"{znodes.USER_CONFIGS}/{user}", znodes.encode_config(_credentials(user)))

    def grant(self, brokers: list[Broker]) -> None:
        """Add the ACLs, and wait until every broker has them."""
        create = message_class("CreateAclsRequest")
        rows = [create.AclCreation(**row) for row in rights()]
        with self.wire(brokers[0]) as wire:
            answer = wire.call(create[3](creations=rows))
        assert [result.error_code for result in answer.results] == [0] * len(rows)
        wait_until(
            lambda: all(self._described(one) == len(rows) for one in brokers), SECONDS, "every broker has the ACLs"
        )

    def _described(self, broker: Broker) -> int:
        request = message_class("DescribeAclsRequest")[3](
            resource_type_filter=ResourceType.ANY, resource_name_filter=None, pattern_type_filter=PatternType.ANY,
            principal_filter=None, host_filter=None, operation=Operation.ANY, permission_type=Permission.ANY,
        )  # fmt: skip
        with self.wire(broker) as wire:
            return sum(len(resource.acls) for resource in wire.call(request).resources)

    # -- clients

    def clients(self, user: str = LOAD) -> Clients:
        """The client settings of a user."""
        addresses, secret = list(self._addresses.values()), password(user)
        return Clients(
            {
                "bootstrap.servers": ",".join(addresses), "security.protocol": "sasl_ssl", "ssl.ca.location": self._ca,
                "sasl.mechanism": self.mechanism, "sasl.username": user, "sasl.password": secret,
            },
            {
                "bootstrap_servers": addresses, "security_protocol": "SASL_SSL", "ssl_cafile": self._ca,
                "sasl_mechanism": self.mechanism, "sasl_plain_username": user, "sasl_plain_password": secret,
            },
        )  # fmt: skip

    def wire(self, broker: Broker, seconds: float = 15, user: str = ADMIN, secret: str = "") -> Wire:
        """An authenticated raw connection of a user. Raises AuthenticationError."""
        wire = Wire(self._addresses[broker.bootstrap], seconds)
        try:
            wire.socket = self._context.wrap_socket(wire.socket, server_hostname=broker.host)
            authenticate(wire, self.mechanism, user, secret or password(user))
        except BaseException:
            wire.close()
            raise
        return wire


def password(user: str) -> str:
    """A user's password."""
    return f"secret-of-{user}-1a5c"


def _credentials(user: str) -> dict[str, str]:
    secret = Password(password(user))
    return {one.value: scram_keys.format_credential(scram_keys.derive(one, secret)) for one in ScramMechanism}


def rights() -> list[dict[str, Any]]:
    """The ACLs of LOAD, each as in CreateAcls: it writes and reads topics, and is a member of groups."""
    both = (Operation.READ, Operation.WRITE)
    topics = [(ResourceType.TOPIC, name, operation) for name in TOPICS for operation in both]
    groups = [(ResourceType.GROUP, name, Operation.READ) for name in GROUPS]
    return [
        {
            "resource_type": kind, "resource_name": name, "resource_pattern_type": PatternType.PREFIXED,
            "principal": f"User:{LOAD}", "host": "*", "operation": operation, "permission_type": Permission.ALLOW,
        }
        for kind, name, operation in topics + groups
    ]  # fmt: skip
