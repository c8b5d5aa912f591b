"""TLS and SASL with Apache Kafka, and one-line errors for refused settings."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.types import LATEST, Range
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.wire.fetching import read
from odradek.pipeline.wire.holes import Holes
from odradek.pipeline.wire.retries import Retries
from odradek.pipeline.wire.settings import Settings

from ..clients.admin import create_topic
from ..harness.apache import Apache
from ..harness.broker import ExternalBroker
from ..harness.process import free_port
from .topics import send

VERSION = "4.1.0"
NAMES = ("SASL_SSL", "SSL", "SASL_PLAINTEXT")
USER, PASSWORD = "u", "secret; of=mine"

_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},{ours}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},{ours}
controller.quorum.voters=0@127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/client.crt
listener.name.ssl.ssl.client.auth=required
listener.name.sasl_ssl.plain.sasl.jaas.config={plain_login}
listener.name.sasl_plaintext.plain.sasl.jaas.config={plain_login}
"""
_LOGIN = "org.apache.kafka.common.security.{}LoginModule required"
_SCRAM = f"{_LOGIN.format('scram.Scram')};"


class Secured(Apache):
    """Apache Kafka that also listens on `ports`; USER exists for every mechanism."""

    def __init__(self, folder: Path) -> None:
        super().__init__(VERSION, folder)
        self.folder = folder
        self.ports = {name: free_port() for name in NAMES}
        for name in ("broker", "client"):
            _certificate(folder, name)
        ours = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        plain = f'{_LOGIN.format("plain.Plain")} user_{USER}="{PASSWORD}";'
        with self.properties.open("a") as out:
            out.write(_LISTENERS.format(
                plain=self.port, controller=free_port(), ours=ours, folder=folder, plain_login=plain,
            ))  # fmt: skip
            for listener in ("sasl_ssl", "sasl_plaintext"):
                for strength in (256, 512):
                    out.write(f"listener.name.{listener}.scram-sha-{strength}.sasl.jaas.config={_SCRAM}\n")


def _certificate(folder: Path, name: str) -> None:
    """A self-signed key and certificate for 127.0.0.1: NAME.key, NAME.crt, and both in NAME.pem."""
    key, crt = folder / f"{name}.key", folder / f"{name}.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(crt)]
    subprocess.run([*command, *more], check=True, capture_output=True)
    (folder / f"{name}.pem").write_text(key.read_text() + crt.read_text())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    running = Secured(tmp_path_factory.mktemp("secured"))
    running.start()
    try:
        for strength in (256, 512):
            _add_user(running, strength)
        yield running
    finally:
        running.stop()


def _add_user(broker: Secured, strength: int) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        mechanism = ScramMechanism[f"SCRAM_SHA_{strength}"]
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, PASSWORD, 4096)])


def options(broker: Secured, listener: str, **more: str) -> dict[str, str]:
    """Options of a client that trusts the broker; `_` stands for `.`."""
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports[listener]}",
        "security.protocol": listener,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.folder / "broker.crt"),
        "default.api.timeout.ms": "1000",
    } | {name.replace("_", "."): value for name, value in more.items()}


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """SASL options with a JAAS line over several lines, as in usual configurations."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    line = f'{_LOGIN.format(module)}\n username="{USER}"\n password="{password}";'
    return {"sasl_mechanism": mechanism, "sasl_jaas_config": line}


def identity(broker: Secured) -> dict[str, str]:
    """The client's key and certificate as a file."""
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(broker.folder / "client.pem")}


def inline_identity(broker: Secured) -> dict[str, str]:
    """The client's key and certificate as text."""
    key, chain = (Path(broker.folder, f"client.{kind}").read_text() for kind in ("key", "crt"))
    return {"ssl_keystore_type": "PEM", "ssl_keystore_key": key, "ssl_keystore_certificate_chain": chain}


def refusal(kafka: dict[str, str]) -> str:
    """The error of a metadata request."""
    with Brokers(kafka) as brokers, pytest.raises(PipelineError) as caught:
        brokers.topics()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
@pytest.mark.parametrize("listener", ["SASL_SSL", pytest.param("SASL_PLAINTEXT", marks=pytest.mark.long)])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_mechanisms(secured: Secured, listener: str, mechanism: str) -> None:
    _reads(secured, options(secured, listener, **login(mechanism)))


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
@pytest.mark.parametrize("who", [identity, inline_identity])
def test_client_certificates(secured: Secured, who: Any) -> None:
    _reads(secured, options(secured, "SSL", **who(secured)))


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
def test_inline_truststore_certificates(secured: Secured) -> None:
    kafka = options(secured, "SSL", **identity(secured))
    kafka["ssl.truststore.certificates"] = Path(kafka.pop("ssl.truststore.location")).read_text()
    _reads(secured, kafka)


def _reads(broker: Secured, kafka: dict[str, str]) -> None:
    topic = create_topic(ExternalBroker(broker.bootstrap))
    send(broker, topic, range(50))
    with Brokers(kafka) as brokers:
        assert brokers.offsets([(topic, 0)], LATEST) == {(topic, 0): 50}
    wanted = Range(topic, 0, 0, 50)
    with Holes(kafka, wanted) as holes:
        assert [chunk.until for chunk in read(kafka, wanted, False, holes)][-1] == 50


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
def test_refused_credentials_are_an_error(secured: Secured) -> None:
    assert "refused the authentication: " in refusal(options(secured, "SASL_SSL", **login("PLAIN", "wrong")))
    assert "refused the authentication: " in refusal(options(secured, "SASL_SSL", **login("SCRAM-SHA-256", "wrong")))
    assert "no broker responds; 127.0.0.1:" in refusal(
        options(secured, "SSL")
    )  # TLS 1.3 reports it after the handshake


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
def test_untrusted_broker_certificate_is_an_error(secured: Secured) -> None:
    stranger = {"ssl_truststore_location": str(secured.folder / "client.crt")}
    assert "CERTIFICATE_VERIFY_FAILED" in refusal(options(secured, "SSL", **identity(secured), **stranger))
    elsewhere = options(secured, "SSL", **identity(secured))
    elsewhere["bootstrap.servers"] = elsewhere["bootstrap.servers"].replace("127.0.0.1", "localhost")
    assert "CERTIFICATE_VERIFY_FAILED" in refusal(elsewhere)
    _reads(secured, elsewhere | {"ssl.endpoint.identification.algorithm": ""})


@pytest.mark.live
@pytest.mark.needs(f"java-{VERSION}")
def test_wrong_security_protocol_for_a_port_is_an_error(secured: Secured) -> None:
    plain = {"bootstrap.servers": f"127.0.0.1:{secured.ports['SSL']}"}
    assert "check kafka.security.protocol for that port" in refusal(plain)
    encrypted = options(secured, "SSL") | {"bootstrap.servers": secured.bootstrap}
    assert refusal(encrypted)


def test_interrupted_tls_handshake_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is shutting down interrupts it, and so does a listener without TLS."""
    greeted = 0
    monkeypatch.setattr(Retries, "over", lambda _: greeted > 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        kafka = {"security.protocol": "SSL", "bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}"}
        with ThreadPoolExecutor() as pool:
            refused = pool.submit(refusal, kafka)
            while not refused.done():
                with suppress(TimeoutError), server.accept()[0] as client:
                    greeted += bool(client.recv(1 << 16))
    assert refused.result().startswith("no broker responds; 127.0.0.1:")
    assert greeted > 2


# -- errors without a request


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol is 'TLS': it must be one of"),
        ({"security.protocol": "SASL_SSL"}, 'kafka.sasl.mechanism=GSSAPI .* use format("kafka")'),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
            'kafka.sasl.mechanism=OAUTHBEARER .* use format("kafka")',
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x required;"},
            "kafka.sasl.jaas.config must name username and password",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"},
            'kafka.ssl.truststore.type is JKS, .* use format("kafka")',
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "/k", "ssl.keystore.type": "PKCS12"},
            'kafka.ssl.keystore.type is PKCS12, .* use format("kafka")',
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere", "ssl.truststore.type": "PEM"},
            "kafka.ssl..*No such file",
        ),
    ],
)
def test_settings_that_only_java_supports_are_refused(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("(", r"\(").replace(")", r"\)")):
        Settings.of({"bootstrap.servers": "h:1", **kafka})


def test_jaas_password_with_quotes_is_parsed() -> None:
    line = r'x required username="a b" password="q\"\\;=" ;'
    kafka = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    security = Settings.of({"bootstrap.servers": "h:1", **kafka}).security
    assert (security.username, security.password) == ("a b", 'q"\\;=')
