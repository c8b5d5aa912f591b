"""`odradek backup` between two brokers with an authorizer: the round trip thing by thing, and what it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker.cli import odradek
from odradek.broker.commands.backup import backup_file
from odradek.broker.commands.backup.saved_cluster import SavedCluster
from odradek.broker.errors import OdradekError
from tests.harness.process import free_port, wait_until
from tests.house.test_readme_examples import blocks
from tests.house.tree import ROOT
from tests.workers.authentication.secured_broker import PASSWORD, USER, SecuredBroker

pytestmark = pytest.mark.live

HOSTILE = "g\x1b[2J\n'\"ö/.."
START_MS = 1_700_000_000_000
SETTINGS = {
    "odradek_workers": 1,
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "password_encoder_secret": "secret-of-encoder",
    "log_retention_ms": -1,
}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="live-secret-1c9e";'


def odradek_run(*words: str, code: int = 0, stdin: str = "") -> str:
    """Output and errors of a command."""
    done = CliRunner().invoke(odradek, list(words), input=stdin)
    if isinstance(done.exception, OdradekError):
        assert code == 1, (done.output, done.exception)
        return f"{done.output}{done.exception}\n"
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def create(broker: SecuredBroker, file: Path, *words: str, code: int = 0) -> str:
    return odradek_run("backup", "create", "--bootstrap-server", broker.bootstrap, str(file), *words, code=code)


def restore(broker: SecuredBroker, file: Path, *words: str, code: int = 0) -> str:
    return odradek_run("backup", "restore", "--bootstrap-server", broker.bootstrap, str(file), *words, code=code)


def saved(broker: SecuredBroker, folder: Path) -> SavedCluster:
    create(broker, folder / "now.json")
    return backup_file.read(folder / "now.json")


def send(broker: SecuredBroker, topic: str, times: list[int]) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for ms in times:
        producer.produce(
            topic, b"x", str(ms), partition=0, timestamp=ms, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(60) == 0 and errors == [None] * len(times)


def commit(broker: SecuredBroker, group: str, *offsets: tuple[str, int, int]) -> None:
    places = [TopicPartition(topic, index, offset, metadata="note ö") for topic, index, offset in offsets]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values():
        assert not [one.error for one in future.result(60).topic_partitions if one.error]


def fill(broker: SecuredBroker) -> None:
    """Something of each kind; the group has read three of five records of `clicks`, and all of `empty`."""
    at = ("--bootstrap-server", broker.bootstrap)
    topics = ("topics", "--create", *at, "--topic")
    odradek_run(*topics, "clicks", "--partitions", "3", "--config", "cleanup.policy=compact,delete")
    odradek_run(*topics, "empty", "--partitions", "1", "--config", "max.message.bytes=123456")
    configs = ("configs", *at, "--alter")
    odradek_run(*configs, "--broker-defaults", "--add-config", "message.max.bytes=2000000")
    odradek_run(*configs, "--broker", "0", "--add-config", "log.cleaner.threads=2")
    odradek_run(*configs, "--broker", "0", "--add-config", f"listener.name.sasl_ssl.plain.sasl.jaas.config=[{JAAS}]")
    odradek_run(
        *configs,
        "--user",
        HOSTILE,
        "--client-defaults",
        "--add-config",
        "request_percentage=12.5,producer_byte_rate=1e9",
    )
    odradek_run(*configs, "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=5")
    odradek_run("users", "add", "scram,=ö", *at, "--password-stdin", stdin="pw-3f8c\n")
    acl = ("acls", *at, "--add", "--allow-principal", "User:scram,=ö", "--operation", "Read")
    odradek_run(*acl, "--topic", "cli", "--resource-pattern-type", "prefixed", "--allow-host", "10.0.0.0")
    odradek_run(*acl, "--group", "g'\"ö,")
    send(broker, "clicks", [START_MS + 10 * i for i in range(5)])
    commit(broker, HOSTILE, ("clicks", 0, 3), ("empty", 0, 0))
    commit(broker, "readers", ("clicks", 0, 5), ("clicks", 1, 0))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path_factory.mktemp("source"), **SETTINGS)
    try:
        made.start()
        fill(made)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path_factory.mktemp("target"), **SETTINGS)
    try:
        yield made.start()  # type: ignore[misc]  # start() returns a Broker
    finally:
        made.close()


@pytest.fixture(scope="module")
def file(source: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backup") / "backup.json"
    output = create(source, path)
    assert "left out: broker 0: listener.name.sasl_ssl.plain.sasl.jaas.config is a secret" in output
    assert "left out: user scram,=ö: the salted password is a secret" in output
    for text in (output, path.read_text()):
        assert "live-secret-1c9e" not in text and "pw-3f8c" not in text and PASSWORD not in text
    return path


@pytest.mark.smoke
def test_round_trip_into_an_empty_broker(
    source: SecuredBroker, target: SecuredBroker, file: Path, tmp_path: Path
) -> None:
    before = saved(target, tmp_path)
    assert (before.topics, before.groups, before.quotas, before.acls) == ({}, {}, {}, frozenset())
    assert "would be restored" in restore(target, file, "--dry-run", code=1)
    assert replace(saved(target, tmp_path), created_ms=0) == replace(before, created_ms=0)

    first = restore(target, file, code=1)
    assert "\x1b" not in first
    assert "user scram,=ö, SCRAM-SHA-256: not restored: the backup has no password" in first
    assert "jaas.config: not restored: a backup has no secrets" in first
    assert "clicks-0: not restored: the log is empty: restore its records first" in first
    wanted, now = backup_file.read(file), saved(target, tmp_path)
    assert now.topics and {name: replace(one, id="") for name, one in now.topics.items()} == {
        name: replace(one, id="") for name, one in (wanted.topics or {}).items()
    }
    assert (now.quotas, now.acls) == (wanted.quotas, wanted.acls) and wanted.quotas and len(wanted.acls or ()) == 2
    wanted_brokers = {name: {k: v for k, v in one.items() if v} for name, one in (wanted.brokers or {}).items()}
    assert now.brokers == wanted_brokers and wanted_brokers[""] and wanted_brokers["0"]

    send(target, "clicks", [START_MS - 1000, *(START_MS + 10 * i for i in range(5))])  # as a restore shifts offsets
    refused = restore(target, file, code=1)
    assert "give --recreated-topics time" in refused and not saved(target, tmp_path).groups
    restore(target, file, "--only", "groups", "--recreated-topics", "time", code=0)
    groups = saved(target, tmp_path).groups or {}
    metadata = {one.metadata for group in (groups, wanted.groups or {}) for one in group[HOSTILE].values()}
    assert groups[HOSTILE]["clicks", 0].offset == 4 and len(metadata) == 1 and metadata != {""}
    assert groups[HOSTILE]["clicks", 0].time == START_MS + 30 and groups[HOSTILE]["empty", 0].at_end
    assert groups["readers"]["clicks", 0].offset == 6 and groups["readers"]["clicks", 0].at_end

    odradek_run("users", "add", "scram,=ö", "--bootstrap-server", target.bootstrap, "--password-stdin", stdin="x\n")
    again = restore(target, file, "--recreated-topics", "time", "--json", code=1)
    left = [row["name"] for row in json.loads(again[: again.rindex("]") + 1]) if row["outcome"] != "equal"]
    assert left == ["broker 0, listener.name.sasl_ssl.plain.sasl.jaas.config"]


def test_what_differs_is_left_alone_until_overwrite(source: SecuredBroker, file: Path, tmp_path: Path) -> None:
    """In the cluster of the backup itself, whose topics are the same."""
    at = ("--bootstrap-server", source.bootstrap)
    odradek_run("configs", *at, "--alter", "--topic", "empty", "--add-config", "max.message.bytes=5000,segment.ms=9000")
    commit(source, "readers", ("clicks", 0, 1))
    odradek_run("configs", *at, "--alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=9")
    before = saved(source, tmp_path)
    output = restore(source, file)
    for line in (
        "topic empty, max.message.bytes: different: 5000 here, 123456 in the backup",
        "topic empty, segment.ms: different: 9000 here, unset in the backup",
        "group readers, clicks-0: different: 1 here, 5 by the backup",
        "ip 10.0.0.1, connection_creation_rate: different: 9.0 here, 5.0 in the backup",
    ):
        assert f"{line}\n" in output
    assert replace(saved(source, tmp_path), created_ms=0) == replace(before, created_ms=0)
    restore(source, file, "--overwrite")
    now, wanted = saved(source, tmp_path), backup_file.read(file)
    assert (now.topics or {})["empty"].configs == {"max.message.bytes": "123456", "segment.ms": "9000"}
    assert (now.groups, now.quotas, now.acls) == (wanted.groups, wanted.quotas, wanted.acls)


def test_group_with_members_keeps_its_offsets(source: SecuredBroker, file: Path, tmp_path: Path) -> None:
    commit(source, "readers", ("clicks", 0, 2))
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.subscribe(["empty"])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), 60, "a member")
        output = restore(source, file, "--overwrite", "--only", "groups", code=1)
        assert output.count("group readers") == 1
        assert "group readers: not restored: it has members (Stable): stop them first" in output
        assert (saved(source, tmp_path).groups or {})["readers"]["clicks", 0].offset == 2
    finally:
        consumer.close()
    restore(source, file, "--overwrite", "--only", "groups")
    assert saved(source, tmp_path).groups == backup_file.read(file).groups


def test_missing_rights_are_named_and_the_rest_is_saved(source: SecuredBroker, tmp_path: Path) -> None:
    at = ("--bootstrap-server", source.bootstrap)
    acl = ("acls", *at, "--add", "--allow-principal", f"User:{USER}", "--operation")
    odradek_run(*acl, "Describe", "--topic", "clicks")
    commit(source, "readers", ("clicks", 0, 2))
    odradek_run(*acl, "Describe", "--group", "readers")
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={USER}\nsasl.password={PASSWORD}\n"
    )
    words = ("--bootstrap-server", source.address("SASL_PLAINTEXT"), "--command-config", str(client))
    path = tmp_path / "cluster.json"
    path.write_text("a complete backup")
    output = odradek_run("backup", "create", *words, str(path), code=1)
    assert path.read_text() == "a complete backup"
    path = tmp_path / "cluster.json.incomplete"
    found = backup_file.read(path)
    for what in (
        "configs of topic clicks", "configs of broker 0", "configs of all brokers", "quotas",
        "users", "ACLs", "groups: perhaps not all",
        "times of offsets in topic clicks",
    ):  # fmt: skip
        assert f"missing: {what}" in output, output
        assert any(line.startswith(what) for line in found.missing)
    assert found.topics and list(found.topics) == ["clicks"] and found.topics["clicks"].partitions == 3
    assert found.groups and list(found.groups) == ["readers"]
    assert (found.quotas, found.users, found.acls) == (None, None, None)
    assert "is not complete" in output and PASSWORD not in output
    output = odradek_run("backup", "restore", *words, str(path), "--dry-run", code=1)
    assert "quotas: would not be restored: they could not be read for this backup" in output


def test_bad_topic_costs_no_other(target: SecuredBroker, tmp_path: Path, file: Path) -> None:
    document = json.loads(file.read_text())
    topic = {"partitions": 1, "replication_factor": 1, "id": "", "configs": {}}
    document["topics"] = {
        "bad\x1b[2J": topic, "good": topic, "many": topic | {"replication_factor": 3},
        "unknown": topic | {"configs": {"confluent.placement": "x"}},
    }  # fmt: skip
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    output = restore(target, path, "--only", "topics", code=1)
    assert "\x1b" not in output and "topic good: restored\n" in output
    assert output.count(": not restored: ") == 3 and "3 not restored" in output
    output = restore(target, path, "--only", "topics", "--replication-factor", "1", code=1)
    assert "topic many: restored\n" in output


def test_absent_broker_is_one_line_and_writes_nothing(file: Path, tmp_path: Path) -> None:
    gone = f"127.0.0.1:{free_port()}"
    for action in ("create", "restore"):
        path = tmp_path / "none.json" if action == "create" else file
        before = file.read_bytes()
        output = odradek_run("backup", action, "--bootstrap-server", gone, str(path), "--timeout", "500", code=1)
        assert output.count("\n") == 1 and f"cannot reach a broker at {gone}" in output
        assert file.read_bytes() == before and not (tmp_path / "none.json").exists()


def test_commands_of_the_manual(source: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of docs/operating.md, in their order: in the cluster of the backup all is equal."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "operating.md").read_text().partition("\n## Backup and restore\n")[2].partition("\n## ")[0]
    lines = "".join(blocks(text, "sh")).splitlines()
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line.replace("localhost:9092", source.bootstrap), comments=True)
        assert words[0] == "odradek"
        output = odradek_run(*words[1:])
        assert ": not restored" not in output and ": restored" not in output
