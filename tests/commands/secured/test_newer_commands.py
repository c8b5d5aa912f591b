"""The commands without a test of their own with security, over SASL_SSL: against our broker and Apache Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.users.scram_requests import SECRET
from tests.commands.conftest import SECONDS, command_line
from tests.workers.authentication.secured_broker import PASSWORD, USER, SecuredBroker

from .conftest import PLAIN, Secured

pytestmark = pytest.mark.live

OPTIONS = {  # of the file with client settings
    "cluster": "--config",
    "verifiable-producer": "--producer.config",
    "verifiable-consumer": "--consumer.config",
    "console-producer": "--producer.config",
}


class Client:
    """Runs commands with one user's settings; `plain` is the address that serves without security."""

    def __init__(self, address: str, plain: str, properties: dict[str, str], folder: Path) -> None:
        self.plain, self.folder = plain, folder
        self._address, self._file = address, folder / "newer.properties"
        shared = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        self._file.write_text("".join(f"{key}={value}\n" for key, value in (shared | properties).items()))

    def run(self, command: str, *words: str, stdin: str = "") -> str:
        """The output of a command; it must succeed, without a warning or a secret."""
        option = OPTIONS.get(command.split()[0], "--command-config")
        connection = ("--bootstrap-server", self._address, option, str(self._file))
        line = command_line(*command.split(), *connection, *words)
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done
        assert "WARN" not in done.stderr and SECRET not in done.stdout + done.stderr
        return done.stdout


@pytest.fixture(
    scope="module",
    params=["odradek", pytest.param("apache", marks=[pytest.mark.long, pytest.mark.needs("java-3.9.1")])],
)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    if request.param == "apache":
        kafka: Secured = request.getfixturevalue("secured")
        properties = {"sasl.jaas.config": PLAIN} | kafka.trust
        yield Client(kafka.address["BOTH"], kafka.kafka.bootstrap, properties, kafka.folder)
        return
    broker = SecuredBroker(tmp_path_factory.mktemp("newer"), odradek_workers=1)
    properties = {
        "sasl.jaas.config": PLAIN.replace("alice", USER).replace(SECRET, PASSWORD),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": broker.ca,
    }  # fmt: skip
    try:
        broker.start()
        yield Client(broker.address("SASL_SSL"), broker.bootstrap, properties, broker.folder)
    finally:
        broker.close()


@pytest.fixture
def topic(client: Client, name: str) -> str:
    """A topic with the messages 0 to 9."""
    client.run("topics", "--create", "--topic", name, "--partitions", "1")
    client.run("console-producer", "--topic", name, stdin="".join(f"{number}\n" for number in range(10)))
    return name


def test_delete_records(client: Client, topic: str) -> None:
    file = client.folder / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    assert f"partition: {topic}-0\tlow_watermark: 4\n" in client.run("delete-records", "--offset-json-file", str(file))


def test_broker_api_versions(client: Client) -> None:
    """It connects to each broker that Metadata names, by its secured listener."""
    printed = client.run("broker-api-versions")
    assert " (id: 0 rack: null) -> (\n" in printed and "ERROR" not in printed and "\tProduce(0): " in printed
    assert client.plain not in printed


def test_cluster_id(client: Client) -> None:
    printed = client.run("cluster cluster-id")
    plain = subprocess.run(
        command_line("cluster", "cluster-id", "--bootstrap-server", client.plain),
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert printed == plain.stdout and printed.startswith("Cluster ID: ")


def test_verifiable_clients_and_their_group(client: Client, name: str) -> None:
    client.run("topics", "--create", "--topic", name, "--partitions", "1")
    sent = client.run("verifiable-producer", "--topic", name, "--max-messages", "3")
    assert json.loads(sent.splitlines()[-1])["acked"] == 3
    words = ("--topic", name, "--group-id", f"g-{name}", "--max-messages", "3", "--verbose")
    read = [json.loads(line) for line in client.run("verifiable-consumer", *words).splitlines()]
    assert [event["value"] for event in read if event["name"] == "record_data"] == ["0", "1", "2"]
    assert f"g-{name}" in client.run("groups", "--list", "--consumer")
    described = client.run("consumer-groups", "--describe", "--group", f"g-{name}", "--lag-seconds", "--json")
    assert [row["lagSeconds"] for row in json.loads(described)] == [0]


def test_simple_consumer_shell(client: Client, topic: str) -> None:
    printed = client.run("simple-consumer-shell", "--topic", topic, "--offset", "8", "--no-wait-at-logend")
    assert printed.splitlines()[:2] == ["8", "9"]


def test_replay_log_producer(client: Client, topic: str) -> None:
    client.run("topics", "--create", "--topic", f"{topic}-copy", "--partitions", "1")
    names = ("--inputtopic", topic, "--outputtopic", f"{topic}-copy")
    client.run("replay-log-producer", *names, "--messages", "10")
    assert client.run("get-offsets", "--topic", f"{topic}-copy") == f"{topic}-copy:0:10\n"


def test_backup(client: Client, topic: str) -> None:
    """What is deleted comes back."""
    file, quota = client.folder / "backup.json", ("--client", topic, "--alter")
    client.run("configs", *quota, "--add-config", "consumer_byte_rate=5")
    client.run("verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", "3")
    client.run("backup create", str(file))
    client.run("configs", *quota, "--delete-config", "consumer_byte_rate")
    client.run("consumer-groups", "--delete", "--group", topic)
    restored = client.run("backup restore", str(file)).splitlines()
    assert f"client-id {topic}, consumer_byte_rate: restored" in restored
    assert f"group {topic}, {topic}-0: restored: 3" in restored
