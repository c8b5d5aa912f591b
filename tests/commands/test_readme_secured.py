"""The README's secured broker: its settings and commands, with another host name and port."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.harness.broker import Broker
from tests.harness.process import wait_until
from tests.house.test_readme_examples import blocks
from tests.house.tree import ROOT

pytestmark = pytest.mark.live

ADDRESS, SECRETS = "kafka.example.com:9093", {"admin": "secret-of-admin", "alice": "secret-of-alice"}
SECONDS = 60


class Secured(Broker):
    """A broker without a listener that serves unauthenticated clients."""

    def await_ready(self) -> None:
        """Wait until the broker prints that it is ready."""
        wait_until(lambda: "\nREADY " in self.log, SECONDS, "the broker")


def properties(printed: str) -> str:
    """The lines for `--command-config` in the output of `users add`."""
    return printed.partition("client.properties\n")[2].partition("\n\n")[0] + "\n"


def test_readme_broker_lets_only_alice_write(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (settings,) = (block for block in blocks(text, "properties") if "SASL_SSL" in block)
    (commands,) = (block for block in blocks(text, "sh") if "tls init" in block)
    broker = Secured(tmp_path)
    address = f"localhost:{broker.port}"
    given = dict(line.split("=", 1) for line in _here(settings, address).splitlines())
    broker.properties = given | {"log.dirs": broker.data_dir, "odradek.workers": 1}
    lines = _here(commands, address).replace("\\\n", "").splitlines()
    (tmp_path / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in broker.properties.items()))
    try:
        for line in lines:
            _carry_out(shlex.split(line, comments=True)[1:], broker)
        assert _sent(address, "alice", "clicks", tmp_path) is None
        assert "authorization failed" in str(_sent(address, "alice", "other", tmp_path)).lower()
        assert "authentication" in str(_sent(address, "mallory", "clicks", tmp_path)).lower()
        assert not any(secret in broker.log for secret in SECRETS.values())
    finally:
        broker.close()


def _here(text: str, address: str) -> str:
    host, port = address.split(":")
    return (
        text.replace(ADDRESS, address).replace("0.0.0.0:9093", f"127.0.0.1:{port}").replace("kafka.example.com", host)
    )


def _carry_out(words: list[str], broker: Secured) -> None:
    if words[0] == "start":
        broker.start()
        return
    given = [*words, "--password-stdin"] if words[0] == "users" else words
    secret = SECRETS[words[2]] if words[0] == "users" else ""
    command = [sys.executable, "-m", "odradek.broker", *given]
    done = subprocess.run(command, input=secret, cwd=broker.folder, capture_output=True, text=True, timeout=SECONDS)
    assert not done.returncode, done.stderr
    if words[:3] == ["users", "add", "admin"]:
        file = broker.folder / "admin.properties"
        file.touch(0o600)
        file.write_text(properties(done.stdout).replace("PASSWORD", secret))


def _sent(address: str, user: str, topic: str, folder: Path) -> list[str | None] | None:
    """The error of a record that was not stored; None if it was."""
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": address, "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user, "sasl.password": SECRETS.get(user, "guess"),
            "ssl.ca.location": str(folder / "tls" / "ca.pem"), "message.timeout.ms": 5000,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )  # fmt: skip
    told: list[str | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(str(error) if error else None))
    producer.flush(SECONDS)
    return None if told == [None] else [*told, *errors]
