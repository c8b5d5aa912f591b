"""`odradek configs` as scripts use it."""

from __future__ import annotations

import json

import pytest

from .conftest import Run

pytestmark = pytest.mark.live


def _configs(run: Run, *words: str) -> dict[str, str]:
    document = json.loads(run("configs", "--describe", *words, "--json").stdout)
    return {entry["name"]: entry["value"] for entry in document[0]["configs"]}


def test_topic_configs_are_set_and_deleted(run: Run, topic: str) -> None:
    added = "retention.ms=77777,cleanup.policy=[compact,delete]"
    done = run("configs", "--alter", "--topic", topic, "--add-config", added)
    assert done.stdout == f"Completed updating config for topic {topic}.\n".encode()
    long_form = ("--entity-type", "topics", "--entity-name", topic)
    assert _configs(run, *long_form) == {"retention.ms": "77777", "cleanup.policy": "compact,delete"}
    text = run("configs", "--describe", "--topic", topic).stdout.decode()
    assert text.startswith(f"Dynamic configs for topic {topic} are:\n")
    assert "  retention.ms=77777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=77777" in text
    run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy")
    assert _configs(run, "--topic", topic) == {}
    missing = run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms", code=1)
    assert b"Invalid config(s): retention.ms" in missing.stderr


def test_all_shows_defaults(run: Run, topic: str) -> None:
    shown = _configs(run, "--topic", topic, "--all")
    assert shown["segment.index.bytes"] == "10485760" and shown["min.insync.replicas"] == "1"


def test_broker_configs_are_set_and_deleted(run: Run, topic: str) -> None:
    broker = json.loads(run("topics", "--describe", "--topic", topic, "--json").stdout)[0]["partitions"][0]["leader"]
    one = ("--broker", str(broker))
    run("configs", "--alter", *one, "--add-config", "log.cleaner.threads=2")
    assert _configs(run, *one)["log.cleaner.threads"] == "2"
    run("configs", "--alter", *one, "--delete-config", "log.cleaner.threads")
    default = ("--entity-type", "brokers", "--entity-default")
    run("configs", "--alter", *default, "--add-config", "message.max.bytes=2000000")
    assert _configs(run, *default)["message.max.bytes"] == "2000000"
    run("configs", "--alter", "--broker-defaults", "--delete-config", "message.max.bytes")


def test_config_without_effect_is_marked_and_refused(run: Run, topic: str) -> None:
    broker = json.loads(run("topics", "--describe", "--topic", topic, "--json").stdout)[0]["partitions"][0]["leader"]
    one = ("--broker", str(broker))
    text = run("configs", "--describe", *one, "--all").stdout.decode()
    marked = {line.split("=")[0].strip() for line in text.splitlines() if line.endswith(" (no effect in this broker)")}
    assert {"num.io.threads", "ssl.engine.factory.class", "process.roles"} <= marked
    assert marked.isdisjoint({"listeners", "log.cleaner.threads", "num.partitions", "replica.selector.class"})
    rows = json.loads(run("configs", "--describe", *one, "--all", "--json").stdout)[0]["configs"]
    assert {row["name"] for row in rows if row["noEffect"]} == marked
    fixed = {row["name"] for row in rows if row["readOnly"]}
    assert marked | {"broker.id"} <= fixed and fixed.isdisjoint({"log.cleaner.threads", "listeners"})
    refused = run("configs", "--alter", *one, "--add-config", "num.io.threads=4", code=1)
    assert b"num.io.threads has no effect in this broker" in refused.stderr
    topics = run("configs", "--describe", "--topic", topic, "--all").stdout.decode()
    assert "local.retention.ms=-2 sensitive=false synonyms={" in topics
    idle = {line.split("=")[0].strip() for line in topics.splitlines() if line.endswith(" (no effect in this broker)")}
    assert idle == {
        "local.retention.bytes", "local.retention.ms", "message.format.version", "remote.log.copy.disable",
        "remote.log.delete.on.disable", "remote.storage.enable",
    }  # fmt: skip


def test_invalid_configs_and_usage_are_refused(run: Run, topic: str) -> None:
    for bad in ("retention.ms=soon", "no.such.config=1"):
        refused = run("configs", "--alter", "--topic", topic, "--add-config", bad, code=1)
        assert b"Traceback" not in refused.stderr
    run("configs", "--describe", "--topic", "no-such-topic-here", code=1)
    run("configs", "--alter", "--topic", topic, code=2)
    run("configs", "--describe", "--broker", "first", code=2)
    run("configs", "--describe", code=2)
