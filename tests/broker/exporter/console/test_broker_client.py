"""How the console connects: by the listener that fits, never past an authorizer; it leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import broker_client
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot

from ....harness.process import free_port

LISTENERS = "INNER://127.0.0.1:1,PLAIN://[::1]:2,SAFE://127.0.0.1:3"
PROTOCOLS = {"INNER": "SSL", "PLAIN": "PLAINTEXT", "SAFE": "SASL_SSL"}


def config(**settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return configuration.resolve({"log.dirs": "data", "broker.id": "0", **given})


def snapshot(*names: str) -> Snapshot:
    """A broker that advertises these listeners."""
    ends = {name: [f"{name.lower()}.example", 9000 + at] for at, name in enumerate(names or PROTOCOLS)}
    return Snapshot(raw_snapshot(1, "c", 0, [{"id": 0, "rack": None, "endpoints": ends}], {}, {}, protocols=PROTOCOLS))


def properties(folder: Path, **pairs: str) -> str:
    path = folder / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in pairs.items()))
    return str(path)


def test_without_a_user_it_is_the_plaintext_listener() -> None:
    servers, found = broker_client.connection(config(), snapshot(), "nothing")
    assert servers == "plain.example:9001" and found == {}


def test_the_file_chooses_the_listener(tmp_path: Path) -> None:
    file = properties(tmp_path, security_protocol="SASL_SSL", client_id="console")
    servers, found = broker_client.connection(config(odradek_console_command_config=file), snapshot(), "nothing")
    assert servers == "safe.example:9002" and found["client.id"] == "console"


def test_the_file_chooses_another_address(tmp_path: Path) -> None:
    file = properties(tmp_path, bootstrap_servers="other:1,another:2")
    servers, found = broker_client.connection(config(odradek_console_command_config=file), snapshot(), "nothing")
    assert servers == "other:1,another:2" and "bootstrap.servers" not in found


def test_without_a_fitting_listener_nothing_is_shown() -> None:
    with pytest.raises(
        Refused, match=r"nothing: this broker has no PLAINTEXT listener; set odradek.console"
    ) as refused:
        broker_client.connection(config(), snapshot("SAFE"), "nothing")
    assert refused.value.status == 403


def test_without_a_user_an_authorizer_is_not_passed() -> None:
    guarded = config(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    with pytest.raises(Refused, match=r"nothing: authorizer.class.name is set and the console has no user") as refused:
        broker_client.connection(guarded, snapshot(), "nothing")
    assert refused.value.status == 403


@pytest.mark.slow
def test_a_broker_that_does_not_answer_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "SECONDS", 0.5)
    file = properties(tmp_path, bootstrap_servers=f"127.0.0.1:{free_port()}")
    before = threading.active_count()
    with (
        pytest.raises(Refused, match=r"cannot look: cannot reach a broker at 127.0.0.1") as refused,
        broker_client.connected(config(odradek_console_command_config=file), snapshot(), "nothing", "look"),
    ):
        pass
    assert refused.value.status == 502 and "\n" not in str(refused.value)
    assert threading.active_count() == before
