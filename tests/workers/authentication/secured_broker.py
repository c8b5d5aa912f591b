"""A real broker with a listener of each security protocol, its users and tokens."""

from __future__ import annotations

import base64
import ssl
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from joserfc import jwk

from odradek.broker.commands.tls import authority
from odradek.broker.commands.users import command as users

from ...cluster.users.sasl_wire import SaslWire
from ...harness.broker import Broker
from ...harness.process import free_port
from ...harness.wire import Wire
from ...security.sasl.bearer import jwks, signed
from ...security.sasl.frames import authenticate, authenticate_answer, handshake, sized

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
USER, PASSWORD = "alice", "alice-secret-9f3a"
OTHER, OTHER_PASSWORD = "bob", "bob-secret-77e1"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}" user_{OTHER}="{OTHER_PASSWORD}";'
)


class SecuredBroker(Broker):
    """`port` is that of PLAINTEXT; `ports` has the ports of all protocols."""

    def __init__(self, folder: Path, **overrides: Any) -> None:
        super().__init__(folder)
        self.ports = {"PLAINTEXT": self.port} | {name: free_port() for name in PROTOCOLS}
        self.tls = folder / "tls"
        authority.init(self.tls, ["localhost", "127.0.0.1"], [USER], 90)
        self._key = jwk.generate_key("EC", "P-256", {"kid": "test"}, private=True)
        keys = folder / "jwks.json"
        keys.write_bytes(jwks(self._key))
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        self.properties |= {
            "listeners": listeners,
            "security.inter.broker.protocol": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.tls / "server.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.tls / "ca.pem",
            "ssl.client.auth": "requested",
            "listener.name.sasl_ssl.ssl.client.auth": "none",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            **{f"listener.name.{name}.plain.sasl.jaas.config": JAAS for name in ("sasl_ssl", "sasl_plaintext")},
        }
        self.set(**overrides)

    @classmethod
    def of_every_mechanism(cls, folder: Path, **overrides: Any) -> SecuredBroker:
        """A broker that also has SCRAM credentials of alice, makes delegation tokens, and logs authentications."""
        made = cls(folder, sasl_enabled_mechanisms=",".join(MECHANISMS), odradek_log_level="DEBUG", **overrides)
        made.set(delegation_token_secret_key="key-of-tokens-55d0")
        words = ["add", USER, "--override", f"log.dirs={made.data_dir}", "--password-stdin"]
        assert CliRunner().invoke(users, words, input=PASSWORD).exit_code == 0
        return made

    def address(self, protocol: str) -> str:
        """`host:port` of a protocol's listener."""
        return f"127.0.0.1:{self.ports[protocol]}"

    @property
    def ca(self) -> str:
        """The CA's certificate."""
        return str(self.tls / "ca.pem")

    @property
    def client_pem(self) -> str:
        """The key and the certificate of alice."""
        return str(self.tls / f"{USER}.pem")

    def token(self, seconds: float = 600, name: str = USER) -> str:
        """A bearer token."""
        now = int(time.time())
        return signed({"sub": name, "iat": now, "exp": now + seconds}, self._key, "ES256")

    @cached_property
    def delegation_token(self) -> tuple[str, str]:
        """The id and the HMAC of a delegation token of alice; needs SCRAM among the mechanisms."""
        wire = SaslWire(self.address("SASL_PLAINTEXT"), USER, PASSWORD)
        made = wire.ask("CreateDelegationToken", 3, renewers=[], max_lifetime_ms=-1)
        wire.close()
        assert made.error_code == 0
        return made.token_id, base64.b64encode(made.hmac).decode()

    # -- raw connections

    def connect(self, protocol: str, *, certificate: bool = False, ca: str = "") -> Wire:
        """A raw connection after its TLS handshake, if the protocol has one."""
        wire = Wire(self.address(protocol), 60)
        if protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=ca or self.ca)
            if certificate:
                context.load_cert_chain(self.client_pem)
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        return wire

    def authenticated(self, protocol: str, **options: Any) -> Wire:
        """An authenticated raw connection."""
        wire = self.connect(protocol, **options)
        if protocol.startswith("SASL"):
            wire.send_raw(sized(handshake("PLAIN")) + sized(authenticate(f"\0{USER}\0{PASSWORD}".encode())))
            wire.read_frame()
            assert authenticate_answer(sized(wire.read_frame())).error_code == 0
        return wire
