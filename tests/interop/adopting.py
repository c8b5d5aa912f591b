"""A directory that Apache Kafka filled with topics of all kinds, and its description of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewTopic,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.cluster.tree.znodes import uuid_bytes
from odradek.storage.segment.scan import Scan

from ..harness.apache import Apache
from ..harness.process import wait_until

KEPT = ("_schemas", "connect-configs", "events")  # topics whose records are older than the broker's default retention
RECORDS = 20
OLD_MS = 10 * 86_400_000
SNAPSHOTS = {"metadata_log_max_record_bytes_between_snapshots": 2000}

Configs = dict[str, dict[str, tuple[Any, ...]]]


class Described(NamedTuple):
    """A broker's description of topics: configs as (value, source, synonyms), ids, and numbers of partitions."""

    configs: Configs
    ids: dict[str, bytes]
    partitions: dict[str, int]


def fill(bootstrap: str, segment_bytes: int) -> None:
    """Create, alter and delete topics of all kinds, with old records, and more metadata than one snapshot holds."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        _make(admin, {"segment.bytes": str(segment_bytes)})
        _alter(bootstrap, admin)
    finally:
        admin.close()
    produce_old(bootstrap, *KEPT)


def _make(admin: KafkaAdminClient, small: dict[str, str]) -> None:
    made: dict[str, tuple[int, dict[str, str]]] = {
        "_schemas": (1, small | {"cleanup.policy": "compact"}),
        "connect-configs": (1, small | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
        "events": (3, small | {"retention.ms": "-1"}),
        "week": (1, small),
        "both": (2, {"cleanup.policy": "compact,delete", "retention.ms": "3600000", "segment.ms": "600000"}),
        "again": (1, {"retention.ms": "1000"}),
    }
    for index in range(20):
        made[f"bulk-{index}"] = (1, {"retention.bytes": str(1000 + index), "max.message.bytes": str(2000 + index)})
    for name, (partitions, configs) in made.items():
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
    admin.delete_topics(["again", "bulk-3", "bulk-4"])
    admin.create_topics([NewTopic("again", 2, 1, topic_configs={"retention.ms": "7200000"})])


def alter(bootstrap: str, *words: str) -> None:
    """`odradek configs --alter WORDS…`, which works with any broker."""
    command = [sys.executable, "-m", "odradek.broker", "configs", "--bootstrap-server", bootstrap, "--alter", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _alter(bootstrap: str, admin: KafkaAdminClient) -> None:
    alter(bootstrap, "--topic", "bulk-7", "--add-config", "cleanup.policy=compact")
    alter(bootstrap, "--topic", "events", "--add-config", "max.message.bytes=1500000")
    alter(bootstrap, "--topic", "both", "--delete-config", "segment.ms")
    alter(bootstrap, "--broker-defaults", "--add-config", "log.retention.bytes=123456789")
    alter(bootstrap, "--broker", "0", "--add-config", "log.index.interval.bytes=5000")
    user = UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, b"a secret", iterations=4096)
    admin.alter_user_scram_credentials([user])


def produce_old(bootstrap: str, *topics: str) -> None:
    """Produce records of ten days ago, several for each key, in several segments."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=0)
    when = time.time_ns() // 1_000_000 - OLD_MS
    for topic in topics:
        for number in range(RECORDS):
            producer.send(topic, b"v" * 500, key=b"%d" % (number % 3), partition=0, timestamp_ms=when + number)
    producer.flush()
    producer.close()


def offsets(bootstrap: str, topic: str) -> list[int]:
    """The offsets of all readable records of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end, found = consumer.end_offsets([partition])[partition], []
    while consumer.position(partition) < end:
        found += [record.offset for records in consumer.poll(1000).values() for record in records]
    consumer.close()
    return found


def await_retention_rounds(bootstrap: str) -> None:
    """Wait until the janitor has checked all partitions: retention has twice emptied a topic."""
    for _ in range(2):
        produce_old(bootstrap, "week")
        wait_until(lambda: offsets(bootstrap, "week") == [], 60, "records of ten days ago are deleted")


def describe(bootstrap: str) -> Described:
    """The broker's description of all topics except internal ones."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        topics = {one["name"]: one for one in admin.describe_topics() if not one["is_internal"]}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        found = admin.describe_configs(wanted, include_synonyms=True, config_filter="all")["topic"]
        configs = {topic: {name: _entry(one) for name, one in found[topic].items()} for topic in topics}
    finally:
        admin.close()
    ids = {name: uuid_bytes(str(one["topic_id"])) if isinstance(one["topic_id"], str) else one["topic_id"].bytes
           for name, one in topics.items()}  # fmt: skip
    return Described(configs, ids, {name: len(one["partitions"]) for name, one in topics.items()})


def _entry(config: Mapping[str, Any]) -> tuple[Any, ...]:
    synonyms = tuple((one["name"], one["value"], str(one["source"])) for one in config["synonyms"] or ())
    return config["value"], str(config["config_source"]), synonyms


def adopted(make: Any, data: Path, folder: Path, **properties: Any) -> Any:
    """Our broker on a copy of `data`, not started."""
    shutil.copytree(data, folder / "data")
    broker = make(start=False, **properties)
    broker.data_dir = folder / "data"
    broker.set(log_dirs=str(broker.data_dir))
    return broker


def without_metadata(data: Path, folder: Path) -> Path:
    """A copy without the metadata log, as Kafka in ZooKeeper mode would leave it."""
    shutil.copytree(data, folder / "zookeeper-mode", ignore=shutil.ignore_patterns("__cluster_metadata-0"))
    return folder / "zookeeper-mode"


def truncate_metadata_log(directory: Path, how: str) -> None:
    """Remove snapshots and the second half of a metadata log, at any byte or between batches; or all but a snapshot."""
    if how == "no log":
        for path in directory.glob("*.log"):
            path.unlink()
        return
    for path in directory.glob("*.checkpoint"):
        path.unlink()
    (log,) = directory.glob("*.log")
    half = log.stat().st_size // 2
    if how == "whole batches":
        with log.open("rb") as file:
            half = max(batch.position for batch in Scan(file.fileno()) if batch.position <= half)
    os.truncate(log, half)


def fingerprint(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, modification time and contents of all files and directories."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (path.stat().st_mode, path.stat().st_mtime_ns, digest)
    return found


class Filled(NamedTuple):
    """Copies of the directory after a SIGKILL and after a clean stop, and the broker's description of its topics."""

    killed: Path
    stopped: Path
    said: Described


def filled(version: str, folder: Path, segment_bytes: int = 2000) -> Filled:
    """Fill a directory with an Apache Kafka."""
    folder.mkdir(parents=True, exist_ok=True)
    apache = Apache(version, folder, **SNAPSHOTS).start()
    try:
        fill(apache.bootstrap, segment_bytes)
        said = describe(apache.bootstrap)
        apache.kill()
        shutil.copytree(apache.data_dir, folder / "killed")
        apache.launch()
    finally:
        apache.stop()
    return Filled(folder / "killed", apache.data_dir, said)
