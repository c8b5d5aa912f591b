"""Which listeners of the exporter ask for users; settings that cannot work are one line before anything starts."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from odradek.broker import config
from odradek.broker.errors import BootError
from odradek.broker.exporter.access import listener_names
from odradek.broker.exporter.access.listener_names import CONSOLE, METRICS
from odradek.broker.supervisor import boot
from odradek.security.sasl.sasl_settings import SaslSettingError

from ....security.tls.conftest import certificates_in

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret-of-alice";'


def settings(folder: Path, **changes: str | None) -> dict[str, str]:
    """A broker with a console that asks for users; None removes a setting."""
    server, _ = certificates_in(folder)
    texts = {
        "log.dirs": str(folder / "data"),
        CONSOLE: "0.0.0.0:9405",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    given = {**texts, **{name.replace("__", "-").replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in given.items() if value is not None}


def faults(texts: dict[str, str]) -> list[str]:
    """The error lines of a start."""
    try:
        boot._check_security(config.resolve(texts))
    except (config.InvalidConfig, BootError) as error:
        return str(error).splitlines()
    return []


def test_the_general_settings_are_enough(tmp_path: Path) -> None:
    assert faults(settings(tmp_path)) == []


def test_who_has_read_the_key_writes_no_core_dump(tmp_path: Path) -> None:
    """The supervisor, also where no listener of the broker has TLS, and no setting a secret."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        assert faults(settings(tmp_path)) == []
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def test_a_listener_may_have_its_own(tmp_path: Path) -> None:
    own = settings(
        tmp_path, odradek_exporter_listener_name="INNER", sasl_enabled_mechanisms="OAUTHBEARER",
        listener_name_inner_sasl_enabled_mechanisms="PLAIN", listener_name_inner_plain_sasl_jaas_config=USERS,
        ssl_client_auth="required",
    )  # fmt: skip
    assert faults(own) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"ssl_keystore_location": None}, "asks for users: ssl.keystore.location: must be set"),
        ({"ssl_keystore_location": "/no/such"}, "asks for users: ssl.keystore.location: /no/such"),
        ({"sasl_enabled_mechanisms": None}, "asks for users: sasl.enabled.mechanisms: GSSAPI is not supported"),
        (
            {"sasl_enabled_mechanisms": "OAUTHBEARER"},
            "asks for users: listener.name.exporter.sasl.enabled.mechanisms: must have one of PLAIN, SCRAM-SHA-256",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN"},
            "asks for users: listener.name.exporter.plain.sasl.jaas.config: must be set",
        ),
        (
            {"odradek_console_security_protocol": "PLAINTEXT"},
            "odradek.console.security.protocol=PLAINTEXT needs a loopback address in odradek.console.listener",
        ),
        ({"odradek_console_security_protocol": "SSL"}, "odradek.console.security.protocol"),
        ({"odradek_exporter_listener_name": ""}, "odradek.exporter.listener.name: must be the name of a listener"),
        ({"odradek_console_listener": "9405"}, "must be host:port"),
    ],
)
def test_what_cannot_work_is_one_line_that_names_the_setting(
    tmp_path: Path, changes: dict[str, str | None], line: str
) -> None:
    (found,) = faults(settings(tmp_path, **changes))
    assert line in found and "secret-of-alice" not in found


@pytest.mark.parametrize(
    ("texts", "secured"),
    [
        ({CONSOLE: "127.0.0.1:1"}, []),
        ({CONSOLE: "[::1]:1"}, []),
        ({CONSOLE: "localhost:1", "odradek.console.security.protocol": "SASL_SSL"}, [CONSOLE]),
        ({CONSOLE: "10.0.0.1:1"}, [CONSOLE]),
        ({CONSOLE: "[::]:1"}, [CONSOLE]),
        ({CONSOLE: "console.example:1"}, [CONSOLE]),
        ({METRICS: "0.0.0.0:1"}, []),
        ({METRICS: "0.0.0.0:1", "odradek.metrics.security.protocol": "SASL_SSL"}, [METRICS]),
        ({"odradek.metrics.security.protocol": "SASL_SSL", "odradek.console.security.protocol": "SASL_SSL"}, []),
    ],
)
def test_loopback_alone_is_open(texts: dict[str, str], secured: list[str]) -> None:
    assert listener_names.secured(config.resolve({"log.dirs": "data", **texts})) == secured


def test_what_an_earlier_version_has_saved_is_as_it_was() -> None:
    assert listener_names.secured({METRICS: "0.0.0.0:1", CONSOLE: "127.0.0.1:2"}) == []


def test_bearer_tokens_are_left_out_and_no_certificate_is_asked_for() -> None:
    given = {"sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256", "ssl.client.auth": "required"}
    found = listener_names.settings_of(given, "WEB")
    assert found["listener.name.web.sasl.enabled.mechanisms"] == "SCRAM-SHA-256"
    assert found["listener.name.web.ssl.client.auth"] == "none"
    own = listener_names.settings_of({**given, "listener.name.web.ssl.client.auth": "required"}, "WEB")
    assert own["listener.name.web.ssl.client.auth"] == "required"
    with pytest.raises(SaslSettingError, match=r"listener\.name\.web\.sasl\.enabled\.mechanisms: must have one of"):
        listener_names.settings_of({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "WEB")
