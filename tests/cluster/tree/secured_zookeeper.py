"""A real ZooKeeper over TLS with users by SASL (DIGEST-MD5), and the files of its clients."""

from __future__ import annotations

import datetime
from pathlib import Path

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair

from ...harness.process import free_port
from ...harness.zookeeper import ZooKeeper
from ...security.tls.conftest import private

NOW = datetime.datetime.now(datetime.UTC)
LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule required"
_SERVER = f'Server {{ {LOGIN} user_kafka="hunter2" user_other="hunter3" user_käthe="pass\\"wörd€"; }};'
PROVIDERS = "org.apache.zookeeper.server.auth."


class SecuredZooKeeper:
    """The server, and its files and those of its clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ca = folder, certificates.new_ca(NOW)
        self.port = free_port()
        self.trusted = private(folder / "ca.pem", self.ca.certificate_pem)
        jaas = private(folder / "jaas.conf", _SERVER.encode())
        properties = {
            "secureClientPort": self.port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.pair("server", ["localhost"]), "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.trusted, "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "want",
            "authProvider.x509": PROVIDERS + "X509AuthenticationProvider",
            "authProvider.sasl": PROVIDERS + "SASLAuthenticationProvider",
        }  # fmt: skip
        options = [f"-Djava.security.auth.login.config={jaas}", "-Dfile.encoding=UTF-8"]
        self.zookeeper = ZooKeeper(folder / "server", properties=properties, options=options).start()

    def pair(self, name: str, hosts: list[str], ca: Pair | None = None) -> str:
        """A file with a key and its certificate."""
        made = certificates.issue(ca or self.ca, name, hosts, NOW, 90)
        return private(self.folder / f"{name}.pem", made.key_pem + made.certificate_pem)

    def jaas(self, user: str, password: str) -> str:
        """A client's JAAS file, in the form of Kafka's brokers."""
        quoted = password.replace('"', '\\"')
        text = (
            f'KafkaServer {{ a.Module required x=y; }};\nClient {{ {LOGIN} username="{user}" password="{quoted}"; }};'
        )
        return private(self.folder / f"{user}-{len(password)}.conf", text.encode())
