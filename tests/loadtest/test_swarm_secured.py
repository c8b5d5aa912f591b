"""Locust's users against a secured broker: one mechanism always, the others in long tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.loadtest.swarm.connection import VARIABLE, kafka_python
from odradek.loadtest.swarm.options import TOPICS
from odradek.loadtest.swarm.reading import verify
from odradek.loadtest.swarm.run import Plan

from ..harness.process import die_with_parent
from ..workers.authentication import client_settings
from ..workers.authentication.client_settings import Way
from ..workers.authentication.secured_broker import SecuredBroker
from ..workers.authentication.test_clients import WAYS

USUAL = Way("SASL_SSL", "PLAIN")
OTHERS = [
    way for way in WAYS if way != USUAL and way.mechanism != "OAUTHBEARER"
]  # a file of settings cannot hold its tokens
SECONDS = 120


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One for each test: its groups would go on where those of the test before stopped."""
    made = SecuredBroker.of_every_mechanism(tmp_path_factory.mktemp("secured"))
    try:
        yield made.start()  # type: ignore[misc]  # start() returns a Broker
    finally:
        made.close()


@pytest.mark.live
@pytest.mark.parametrize("way", [USUAL, *(pytest.param(way, marks=pytest.mark.long) for way in OTHERS)], ids=str)
def test_secured_users_have_no_error_and_lose_no_record(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """Every user also authenticates as its principal."""
    monkeypatch.setenv(VARIABLE, client_settings.librdkafka_file(broker, way))
    plan = Plan(6, 20, 1, "steady", None, tmp_path / "report.html", ("--partitions", "2"))
    since, ledgers = len(broker.log), tmp_path / "ledger"
    words = plan.words(broker.address(way.protocol), ledgers)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=SECONDS, preexec_fn=die_with_parent)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = verify(broker.address(way.protocol), ledgers, TOPICS)
    assert findings.faults == [] and findings.acked
    found = [line for line in broker.log[since:].splitlines() if ": authenticated as " in line]
    assert found and all(line.endswith(f"{way.protocol}): authenticated as {way.principal}") for line in found)


def test_settings_file_of_librdkafka_is_translated_for_kafka_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.conf"
    file.write_text("# a comment\nsecurity.protocol=sasl_ssl\nsasl.password = a=b\nlinger.ms=5\n")
    monkeypatch.setenv(VARIABLE, str(file))
    expected = {"security_protocol": "SASL_SSL", "sasl_plain_password": "a=b", "bootstrap_servers": "h:1"}
    assert kafka_python("h:1") == expected
    monkeypatch.delenv(VARIABLE)
    assert kafka_python("h:1") == {"bootstrap_servers": "h:1"}
