"""A command whose TLS or SASL connection is refused ends soon, with one line that names the setting."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.commands.tls import authority
from tests.commands.conftest import command_line
from tests.workers.authentication.secured_broker import PASSWORD, USER, SecuredBroker

pytestmark = pytest.mark.live

SECONDS = 10  # for a start of Python and PATIENCE_S on a busy machine; below kafka-python's 30
PLAIN_CLIENT = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'
)
SASL = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_CLIENT}
WRONG = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_CLIENT.replace(PASSWORD, "no-such-word")}
SCRAM = {
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": PLAIN_CLIENT.replace("plain.PlainLoginModule", "scram.ScramLoginModule"),
}
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "{ca}"}
OTHERS = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "{other}/ca.pem"}
STRANGER = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{other}/alice.pem"}

CASES = {  # listener, security.protocol, other settings, text in the error line
    "wrong CA": ("SSL", "SSL", OTHERS, "(ssl.truststore.location)"),
    "no CA": ("SASL_SSL", "SASL_SSL", SASL, "(ssl.truststore.location)"),
    "plain to TLS": ("SSL", "PLAINTEXT", {}, "security.protocol=PLAINTEXT"),
    "SASL to TLS": ("SASL_SSL", "SASL_PLAINTEXT", SASL, "security.protocol=SASL_PLAINTEXT"),
    "TLS to plain": ("PLAINTEXT", "SSL", TRUST, "security.protocol=SSL"),
    "TLS to SASL": ("SASL_PLAINTEXT", "SSL", TRUST, "security.protocol=SSL"),
    "plain to SASL": ("SASL_PLAINTEXT", "PLAINTEXT", {}, "security.protocol=PLAINTEXT"),
    "TLS to SASL over TLS": ("SASL_SSL", "SSL", TRUST, "security.protocol=SSL"),
    "SASL to plain": ("PLAINTEXT", "SASL_PLAINTEXT", SASL, "does not use SASL (security.protocol)"),
    "wrong password": ("SASL_PLAINTEXT", "SASL_PLAINTEXT", WRONG, "(sasl.jaas.config)"),
    "wrong password over TLS": ("SASL_SSL", "SASL_SSL", WRONG | TRUST, "(sasl.jaas.config)"),
    "mechanism": ("SASL_PLAINTEXT", "SASL_PLAINTEXT", SCRAM, "sasl.mechanism=SCRAM-SHA-256"),
    "client certificate of another CA": ("SSL", "SSL", STRANGER | TRUST, "ssl.keystore.location"),
}
OF_EACH = {  # commands besides `topics`
    "configs": ["--describe", "--entity-type", "topics"],
    "acls": ["--list"],
    "users list": [],
    "backup create": ["{offsets}"],
    "console-producer": ["--topic", "t"],
    "console-consumer": ["--topic", "t"],
    "consumer-groups": ["--list"],
    "get-offsets": [],
    "delete-records": ["--offset-json-file", "{offsets}"],
    "broker-api-versions": [],
    "cluster cluster-id": [],
    "groups": ["--list"],
    "verifiable-producer": ["--topic", "t", "--max-messages", "1"],
    "verifiable-consumer": ["--topic", "t", "--group-id", "g", "--max-messages", "1"],
    "simple-consumer-shell": ["--topic", "t"],
    "replay-log-producer": ["--inputtopic", "t", "--outputtopic", "o"],
}
OPTION = {  # of the file with client settings
    "console-producer": "--producer.config",
    "console-consumer": "--consumer.config",
    "cluster cluster-id": "--config",
    "verifiable-producer": "--producer.config",
    "verifiable-consumer": "--consumer.config",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path_factory.mktemp("refusing"), odradek_workers=1)
    authority.init(made.folder / "other", ["localhost"], ["alice"], 90)
    made.tls = made.folder / "no-name"
    authority.init(made.tls, ["127.0.0.1"], ["alice"], 90)
    made.set(ssl_keystore_location=made.tls / "server.pem", ssl_truststore_location=made.tls / "ca.pem")
    try:
        yield made.start()  # type: ignore[misc]  # start() returns a Broker
    finally:
        made.close()


def run(address: str, file: Path, words: list[str], option: str) -> str:
    """Run a command that must fail soon; the only line of its output."""
    began = time.monotonic()
    full = command_line(*words[0].split(), "--bootstrap-server", address, option, str(file), *words[1:])
    done = subprocess.run(full, capture_output=True, text=True, timeout=60, input="line\n")
    assert done.returncode == 1, done
    assert time.monotonic() - began < SECONDS
    assert done.stderr.count("\n") == 1 and "no-such-word" not in done.stderr, done.stderr
    return done.stderr


def written(broker: SecuredBroker, properties: dict[str, str]) -> Path:
    file = broker.folder / "client.properties"
    lines = (f"{key}={value.format(ca=broker.ca, other=broker.folder / 'other')}" for key, value in properties.items())
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("case", CASES)
def test_refused_connection_names_the_setting(broker: SecuredBroker, case: str) -> None:
    listener, protocol, settings, text = CASES[case]
    file = written(broker, {"security.protocol": protocol} | settings)
    assert text in run(broker.address(listener), file, ["topics", "--list"], "--command-config")


@pytest.mark.parametrize("command", OF_EACH)
def test_each_command_names_the_setting(broker: SecuredBroker, command: str) -> None:
    offsets = broker.folder / "offsets.json"
    offsets.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 0}]}')
    words = [command, *(word.format(offsets=offsets) for word in OF_EACH[command])]
    how = OPTION.get(command, "--command-config")
    file = written(broker, {"security.protocol": "SSL"} | OTHERS)
    assert "(ssl.truststore.location)" in run(broker.address("SSL"), file, words, how)
    file = written(broker, {"security.protocol": "PLAINTEXT"})
    assert "security.protocol" in run(broker.address("SASL_PLAINTEXT"), file, words, how)


def test_certificate_for_another_host_name_is_refused(broker: SecuredBroker) -> None:
    """The certificate is only valid for 127.0.0.1."""
    file = written(broker, {"security.protocol": "SSL"} | TRUST)
    line = run(broker.address("SSL").replace("127.0.0.1", "localhost"), file, ["topics", "--list"], "--command-config")
    assert "(ssl.endpoint.identification.algorithm)" in line


def test_status_connects_to_the_listener_with_the_protocol(broker: SecuredBroker) -> None:
    """By an address, and for the broker on this machine by the protocol in the file."""
    file = written(broker, {"security.protocol": "SSL"} | TRUST)
    for where in (["--bootstrap-server", broker.address("SSL")], [str(broker.properties_file)]):
        words = command_line("status", "--cluster", *where, "--command-config", str(file))
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("nothing is wrong\n") and broker.address("SSL") in done.stdout, done
    words = command_line("status", "--cluster", "--bootstrap-server", broker.address("SASL_SSL"))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "security.protocol=PLAINTEXT" in done.stderr, done
