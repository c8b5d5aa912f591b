"""Adoption of a directory of Apache Kafka with ZooKeeper: only a member of its cluster can know the configs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from ..harness.apache import ApacheMember
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper
from . import adopting
from .adopting import RECORDS

pytestmark = [pytest.mark.needs("java-3.9.1"), pytest.mark.long]
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "2000"}


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path / "zookeeper").start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def data(zookeeper: ZooKeeper, tmp_path: Path) -> Path:
    """The directory of the stopped broker 0, with a compacted topic and records of ten days ago."""
    kafka = ApacheMember(tmp_path / "kafka", 0, zookeeper.connect).start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        admin.create_topics([NewTopic("_schemas", 1, 1, topic_configs=CONFIGS)])
        admin.close()
        adopting.produce_old(kafka.bootstrap, "_schemas")
    finally:
        kafka.stop()
    return kafka.data_dir


def overrides(broker: Any) -> dict[str, str]:
    entries = adopting.describe(broker.bootstrap).configs["_schemas"]
    return {name: entry[0] for name, entry in entries.items() if "TOPIC" in entry[1]}


@pytest.mark.timeout(240)
def test_directory_of_a_zookeeper_broker_is_adopted_alone_and_in_its_cluster(
    zookeeper: ZooKeeper, data: Path, fresh_broker: Any, tmp_path: Path
) -> None:  # fmt: skip
    quick = {"log_retention_check_interval_ms": 50}
    alone = adopting.adopted(fresh_broker, data, tmp_path / "alone", **quick).start()
    status = alone.command("status", str(alone.properties_file), "--json").stdout
    assert json.loads(status)["unknown_retention"] == ["_schemas"]
    admin = KafkaAdminClient(bootstrap_servers=alone.bootstrap)
    admin.create_topics([NewTopic("week", 1, 1)])
    admin.close()
    adopting.await_retention_rounds(alone.bootstrap)
    assert adopting.offsets(alone.bootstrap, "_schemas") == list(range(RECORDS))
    member = adopting.adopted(
        fresh_broker, data, tmp_path / "member", zookeeper_connect=zookeeper.connect, **quick
    ).start()  # fmt: skip
    wait_until(lambda: overrides(member) == CONFIGS, 60, "its configs are those in ZooKeeper")
    assert adopting.offsets(member.bootstrap, "_schemas")[-3:] == list(range(RECORDS))[-3:]
