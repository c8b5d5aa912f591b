"""Apache Kafka 3.9.1 with listeners of all security protocols, for tests of our commands."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.commands.tls import command as tls
from tests.cluster.users.scram_requests import SECRET, alter, upsertion
from tests.commands.conftest import command_line
from tests.harness.apache import Apache
from tests.harness.process import free_port, wait_until
from tests.harness.wire import Wire

SECURITY = "org.apache.kafka.common.security"
PLAIN = f'{SECURITY}.plain.PlainLoginModule required username="alice" password="{SECRET}";'
SCRAM = f'{SECURITY}.scram.ScramLoginModule required username="al,i=ce" password="{SECRET}";'
OAUTH = f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
LISTENERS = {"SSL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "OAUTH": "SASL_PLAINTEXT"}


class Secured:
    """Apache Kafka with a listener for each protocol, and the certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tls = folder, folder / "tls"
        words = ["init", "--hostname", "127.0.0.1", "--client", "alice", "--directory", str(self.tls)]
        assert CliRunner().invoke(tls, words).exit_code == 0
        self.address = {name: f"127.0.0.1:{free_port()}" for name in LISTENERS}
        self.kafka = Apache("3.9.1", folder)
        self.kafka.properties.write_text(self._properties(self.kafka.properties.read_text()))
        (folder / "token").write_text(unsecured_token())

    def _properties(self, text: str) -> str:
        ends = "".join(f",{name}://{address}" for name, address in self.address.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in LISTENERS.items())
        lines = [
            *(line + ends * line.startswith(("listeners=", "advertised.")) for line in text.splitlines()),
            f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "ssl.keystore.type=PEM", f"ssl.keystore.location={self.tls / 'server.pem'}",
            "ssl.truststore.type=PEM", f"ssl.truststore.location={self.tls / 'ca.pem'}",
            "listener.name.ssl.ssl.client.auth=required", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER", "delegation.token.secret.key=the key",
            f"listener.name.oauth.oauthbearer.sasl.jaas.config={OAUTH}",
        ]  # fmt: skip
        for name in ("sasl", "both"):
            users = PLAIN.replace(";", f' user_alice="{SECRET}";')
            lines.append(f"listener.name.{name}.plain.sasl.jaas.config={users}")
            lines += [f"listener.name.{name}.scram-sha-{size}.sasl.jaas.config={SCRAM}" for size in (256, 512)]
        return "\n".join(lines) + "\n"

    def connection(self, listener: str, **properties: str) -> list[str]:
        """The options that connect a command with these properties."""
        file = self.folder / "client.properties"
        lines = {"security.protocol": LISTENERS[listener]} | {k.replace("_", "."): v for k, v in properties.items()}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return ["--bootstrap-server", self.address[listener], "--command-config", str(file)]

    def topics(self, listener: str, **properties: str) -> subprocess.CompletedProcess[bytes]:
        """`odradek topics --list` with these properties."""
        words = command_line("topics", "--list", *self.connection(listener, **properties))
        return subprocess.run(words, capture_output=True, timeout=120)

    @property
    def trust(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.tls / "ca.pem")}

    @property
    def identity(self) -> dict[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.tls / "alice.pem")}


def unsecured_token() -> str:
    claims = {"sub": "alice", "iat": time.time(), "exp": time.time() + 3600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)]
    return ".".join(part.decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with ExitStack() as stack:
        made = Secured(tmp_path_factory.mktemp("secured"))
        stack.callback(made.kafka.kill)
        made.kafka.start()
        with Wire(made.kafka.bootstrap) as wire:
            for mechanism in (1, 2):  # KRaft allows one credential for each request
                assert alter(wire, [upsertion("al,i=ce", mechanism)])[0][1] == 0
        scram = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": SCRAM}
        wait_until(lambda: made.topics("SASL", **scram).returncode == 0, 60, "the user is known")
        yield made
