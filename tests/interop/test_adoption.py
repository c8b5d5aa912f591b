"""Adoption of a directory of Apache Kafka keeps configs and ids; a topic with unknown retention keeps all records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.configs.adopted_configs import MARK

from ..harness.process import wait_until
from . import adopting
from .adopting import KEPT, RECORDS, Filled

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]
QUICK = {"log_retention_check_interval_ms": 50, "log_cleaner_backoff_ms": 50}
ALL = list(range(RECORDS))


def status(broker: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    return found


def check_described(broker: Any, kafka: Filled) -> None:
    """Compare our description of the topics with Kafka's, field by field."""
    ours = adopting.describe(broker.bootstrap)
    assert (ours.ids, ours.partitions) == (kafka.said.ids, kafka.said.partitions)
    for topic, configs in kafka.said.configs.items():
        same = {name: ours.configs[topic][name] for name in configs if name in ours.configs[topic]}
        assert same == configs, topic


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.long)])
def test_adopted_topics_keep_configs_and_ids(kafka: Filled, fresh_broker: Any, tmp_path: Path, how: str) -> None:
    data = getattr(kafka, how)
    broker = adopting.adopted(fresh_broker, data, tmp_path, **QUICK).start()
    check_described(broker, kafka)
    adopting.await_retention_rounds(broker.bootstrap)
    assert adopting.offsets(broker.bootstrap, "events") == ALL
    for topic in ("_schemas", "connect-configs"):
        assert adopting.offsets(broker.bootstrap, topic)[-3:] == ALL[-3:], (
            "compaction keeps the last record of each key"
        )
    assert status(broker)["unknown_retention"] == []
    log = "__cluster_metadata-0"
    assert adopting.fingerprint(broker.data_dir / log) == adopting.fingerprint(data / log), (
        "the metadata log, the only place of the users, is unchanged"
    )


@pytest.mark.timeout(240)
def test_topics_with_unknown_retention_keep_records_until_it_is_set(
    kafka: Filled, fresh_broker: Any, tmp_path: Path
) -> None:
    data = adopting.without_metadata(kafka.killed, tmp_path)
    broker = adopting.adopted(fresh_broker, data, tmp_path, **QUICK).start()
    topics = sorted(kafka.said.ids)
    assert status(broker)["unknown_retention"] == topics
    adopting.produce_old(broker.bootstrap, "week")
    described = broker.command("configs", "--bootstrap-server", broker.bootstrap, "--describe", "--topic", "events")
    assert "retention.ms=-1 " in described.stdout and f"{MARK}=true" in described.stdout
    adopting.alter(
        broker.bootstrap, "--topic", "bulk-1", "--add-config", "max.message.bytes=5000"
    )  # does not set the retention
    adopting.alter(broker.bootstrap, "--topic", "_schemas", "--add-config", "cleanup.policy=compact")
    topics.remove("_schemas")
    assert status(broker)["unknown_retention"] == topics
    defaults = broker.command("adopt", "--bootstrap-server", broker.bootstrap, "--defaults", "--topic", "week")
    assert defaults.returncode == 0, defaults.stderr
    topics.remove("week")
    adopting.await_retention_rounds(broker.bootstrap)
    for topic in set(KEPT) - {"_schemas"}:
        assert adopting.offsets(broker.bootstrap, topic) == ALL
    named = broker.log.count(", ".join(topics))
    broker.restart()
    assert broker.log.count(", ".join(topics)) == named + 1, "each start logs these topics"
    assert broker.command("adopt", "--bootstrap-server", broker.bootstrap, "--defaults").returncode == 0
    assert status(broker)["unknown_retention"] == []
    wait_until(
        lambda: adopting.offsets(broker.bootstrap, "events") == [], 60, "the topic uses the defaults of the broker"
    )


def test_dry_run_changes_nothing(kafka: Filled, fresh_broker: Any) -> None:
    before = adopting.fingerprint(kafka.killed)
    broker = fresh_broker(start=False)
    done = broker.command("adopt", str(kafka.killed), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "_schemas" in done.stdout and "1 user" in done.stdout and "UNKNOWN RETENTION" not in done.stdout
    document = json.loads(broker.command("adopt", str(kafka.killed), "--dry-run", "--json").stdout)
    assert {one["topic"]: one["partitions"] for one in document["topics"]} == kafka.said.partitions
    assert document["dynamicBrokerConfigs"][""] == {"log.retention.bytes": "123456789"}
    assert adopting.fingerprint(kafka.killed) == before
    assert "secret" not in done.stdout


def test_dry_run_names_topics_with_unknown_retention(kafka: Filled, fresh_broker: Any, tmp_path: Path) -> None:
    data = adopting.without_metadata(kafka.killed, tmp_path)
    done = fresh_broker(start=False).command("adopt", str(data), "--dry-run")
    assert "UNKNOWN RETENTION" in done.stdout and "events: the directory has no metadata log of KRaft" in done.stdout


def test_damaged_metadata_log_makes_retention_unknown(kafka: Filled, fresh_broker: Any, tmp_path: Path) -> None:
    shutil.copytree(kafka.stopped, tmp_path / "copy")
    for path in (tmp_path / "copy" / "__cluster_metadata-0").iterdir():
        if path.suffix in (".log", ".checkpoint"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes().replace(b"TopicRecord", b"").replace(b"_schemas", b"_Schemas"))
    broker = adopting.adopted(fresh_broker, tmp_path / "copy", tmp_path).start()
    assert status(broker)["unknown_retention"] == sorted(kafka.said.ids)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "how", ["half", *(pytest.param(how, marks=pytest.mark.long) for how in ("whole batches", "no log"))]
)
def test_truncated_metadata_log_makes_retention_unknown(
    kafka: Filled, fresh_broker: Any, tmp_path: Path, how: str
) -> None:
    """The rest of the log may have a short retention that a lost record replaced by an unlimited one."""
    shutil.copytree(kafka.stopped, tmp_path / "copy")
    adopting.truncate_metadata_log(tmp_path / "copy" / "__cluster_metadata-0", how)
    broker = adopting.adopted(fresh_broker, tmp_path / "copy", tmp_path, **QUICK).start()
    assert status(broker)["unknown_retention"] == sorted(kafka.said.ids)
    assert adopting.offsets(broker.bootstrap, "events") == ALL


@pytest.mark.long
@pytest.mark.needs("java-4.1.0")
@pytest.mark.timeout(240)
def test_directory_of_kafka_4_is_adopted(fresh_broker: Any, tmp_path: Path) -> None:
    kafka = adopting.filled("4.1.0", tmp_path / "apache", 1 << 20)  # the lower bound of segment.bytes in Kafka 4
    broker = adopting.adopted(fresh_broker, kafka.stopped, tmp_path, **QUICK).start()
    ours = adopting.describe(broker.bootstrap)
    assert (ours.ids, ours.partitions) == (kafka.said.ids, kafka.said.partitions)
    for topic, configs in kafka.said.configs.items():
        set_there = {name: entry[0] for name, entry in configs.items() if "TOPIC" in entry[1].upper()}
        assert {name: ours.configs[topic][name][0] for name in set_there} == set_there
