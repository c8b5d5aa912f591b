"""The brokers that client suites run against: each has what its project's own broker has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .harness.broker import Broker
from .harness.process import free_port
from .workers.authentication import client_settings
from .workers.authentication.client_settings import Way
from .workers.authentication.secured_broker import OTHER, OTHER_PASSWORD, USER, SecuredBroker

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
OPEN = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
_COMMON = {"broker_id": 1, "group_min_session_timeout_ms": 3000}
_SCRAM_USER = "adminscram"
_SCRAM_PASSWORDS = {"SCRAM-SHA-256": "admin-secret-256", "SCRAM-SHA-512": "admin-secret-512"}
_PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_adminplain="admin-secret";'
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Ready(NamedTuple):
    """A broker that runs, the address for the script, and what the script wants in its environment."""

    broker: Broker
    address: str
    environment: dict[str, str]


def plain(folder: Path, **settings: Any) -> Ready:
    """One listener."""
    broker = Broker(folder, **{**_COMMON, **settings})
    broker.set(advertised_listeners=f"PLAINTEXT://localhost:{broker.port}")
    return Ready(broker.start(), f"localhost:{broker.port}", {})


def with_sasl(folder: Path, **settings: Any) -> Ready:
    """Also a listener for SASL, at the port and with the users that kafka-go's tests have in their source."""
    broker, port = Broker(folder, **{**_COMMON, **settings}), free_port()
    folder.mkdir()
    broker.set(
        listeners=f"PLAINTEXT://127.0.0.1:{broker.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        advertised_listeners=f"PLAINTEXT://localhost:{broker.port},SASL_PLAINTEXT://localhost:9093",
        sasl_enabled_mechanisms=",".join(("PLAIN", *_SCRAM_PASSWORDS)),
    )
    broker.properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = _PLAIN_USERS
    for mechanism, password in _SCRAM_PASSWORDS.items():
        broker.properties[f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"] = _SCRAM_MODULE
        words = ["users", "add", _SCRAM_USER, "--mechanism", mechanism, "--password-stdin"]
        _carry_out(broker, *words, "--override", f"log.dirs={broker.data_dir}", given=password)
    return Ready(broker.start(), f"localhost:{broker.port}", {"ADVERTISED": f"9093=127.0.0.1:{port}"})


def with_acls(folder: Path, **settings: Any) -> Ready:
    """SASL_SSL with SCRAM, and exactly the ACLs that kcat's suite needs: its names all begin with `kc`."""
    broker = SecuredBroker.of_every_mechanism(folder, **{**_COMMON, **settings})
    broker.set(authorizer_class_name=AUTHORIZER, super_users=f"User:{OTHER}")
    broker.start()
    config = folder / "super-user.properties"
    login = {"sasl.mechanism": "PLAIN", "sasl.username": OTHER, "sasl.password": OTHER_PASSWORD}
    lines = {"security.protocol": "SASL_SSL", "ssl.ca.location": broker.ca, **login}
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    words = ["acls", "--bootstrap-server", broker.address("SASL_SSL"), "--command-config", str(config)]
    words += ["--add", "--allow-principal", f"User:{USER}", "--producer", "--consumer", "--resource-pattern-type"]
    _carry_out(broker, *words, "prefixed", "--topic", "kc", "--group", "kc", "--transactional-id", "kc")
    way = Way("SASL_SSL", "SCRAM-SHA-512")
    return Ready(broker, broker.address("SASL_SSL"), {"KCAT_CONFIG": client_settings.librdkafka_file(broker, way)})


def _carry_out(broker: Broker, *words: str, given: str = "") -> None:
    done = broker.command(*words, input=given, timeout=300)
    assert done.returncode == 0, done.stderr
