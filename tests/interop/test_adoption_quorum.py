"""Adoption of each directory of a KRaft quorum of three nodes, by a broker alone.

With several voters the end of a metadata log may not be committed. So a topic keeps the configs that Kafka had, or
its retention is unknown and all its records stay.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.cluster.configs.adopted_configs import UNKNOWN_RETENTION
from odradek.cluster.tree.znodes import random_uuid, uuid_text

from ..harness import java
from ..harness.apache import Apache
from ..harness.process import free_port, wait_until
from . import adopting
from .adopting import RECORDS, SNAPSHOTS, Described

VERSION = "4.1.0"
NODES = range(3)
SMALL = {"segment.bytes": str(1 << 20)}  # the lower bound in Kafka 4
MADE = {
    "_schemas": SMALL | {"cleanup.policy": "compact"},
    "events": SMALL | {"retention.ms": "-1"},
    "week": SMALL,
    "altered": SMALL,
    "again": {"retention.ms": "1000"},
}
KEPT = ("_schemas", "events", "altered")  # records of ten days ago stay
STOP_S = 30

pytestmark = [pytest.mark.long, pytest.mark.needs(f"java-{VERSION}"), pytest.mark.timeout(600)]


class Quorum:
    """Three nodes, each broker and controller."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in NODES]
        voters = ",".join(f"{node}@127.0.0.1:{ports[node]}" for node in NODES)
        self.nodes = [_node(folder / f"node-{node}", node, voters, ports[node]) for node in NODES]

    def start(self) -> Quorum:
        """Format the directories and start."""
        cluster = uuid_text(random_uuid())
        for node in self.nodes:
            java.run(VERSION, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(node.properties))
        return self.launch()

    def launch(self) -> Quorum:
        """Start all nodes, since one node alone does not answer."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.await_ready(180)
        return self

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def kill(self) -> None:
        """Kill all nodes by SIGKILL."""
        for node in self.nodes:
            node.kill()

    def stop(self) -> None:
        """Stop all nodes by SIGTERM. The last ones lack a quorum for a controlled shutdown and are killed later."""
        for node in self.nodes:
            if node.process is not None:
                node.process.terminate()
        for node in self.nodes:
            if node.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    node.process.wait(STOP_S)
        self.kill()

    def copies(self, folder: Path) -> list[Path]:
        """Copies of the directories of the nodes."""
        return [Path(shutil.copytree(node.data_dir, folder / str(at))) for at, node in enumerate(self.nodes)]


def _node(folder: Path, node: int, voters: str, port: int) -> Apache:
    folder.mkdir(parents=True)
    made = Apache(VERSION, folder, **SNAPSHOTS, node_id=node, controller_quorum_voters=voters)
    listeners = f"PLAINTEXT://127.0.0.1:{made.port},CONTROLLER://127.0.0.1:{port}"
    with made.properties.open("a") as properties:
        properties.write(f"listeners={listeners}\noffsets.topic.replication.factor=3\nmin.insync.replicas=3\n")
    return made


class Left(NamedTuple):
    """The directories of the nodes, and Kafka's description of the topics."""

    killed: list[Path]
    stopped: list[Path]
    said: Described


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    folder = tmp_path_factory.mktemp("quorum")
    quorum = Quorum(folder).start()
    try:
        fill(quorum.bootstrap)
        said = adopting.describe(quorum.bootstrap)
        wait_until(lambda: same_everywhere(quorum), 60, "every node has all records")
        quorum.kill()
        killed, before = quorum.copies(folder / "killed"), snapshots(quorum)
        quorum.launch()
        another = lambda: all(map(set.difference, snapshots(quorum), before))  # noqa: E731
        wait_until(another, 120, "a snapshot of all metadata on each node")
        quorum.stop()
    finally:
        quorum.kill()
    return Left(killed, quorum.copies(folder / "stopped"), said)


def fill(bootstrap: str) -> None:
    """Create, alter, delete and recreate topics with a replica on each node and old records."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        for name, configs in MADE.items():
            admin.create_topics([NewTopic(name, 2, 3, topic_configs=configs)])
        adopting.alter(bootstrap, "--topic", "altered", "--add-config", "retention.ms=-1,max.message.bytes=1500000")
        adopting.alter(bootstrap, "--broker-defaults", "--add-config", "log.retention.bytes=123456789")
        admin.delete_topics(["again"])
        admin.create_topics([NewTopic("again", 1, 3, topic_configs={"retention.ms": "7200000"})])
    finally:
        admin.close()
    adopting.produce_old(bootstrap, *KEPT)


def same_everywhere(quorum: Quorum) -> bool:
    def logs(node: Apache) -> list[bytes]:
        return [path.read_bytes() for name in KEPT for path in sorted((node.data_dir / f"{name}-0").glob("*.log"))]

    first, *others = map(logs, quorum.nodes)
    return any(first) and all(one == first for one in others)


def snapshots(quorum: Quorum) -> list[set[str]]:
    """The metadata snapshots by node. No-op records every second cause new ones."""
    return [{path.name for path in node.data_dir.glob("__cluster_metadata-0/*.checkpoint")} for node in quorum.nodes]


def check(broker: Any, said: Described) -> set[str]:
    """Assert that adopted configs are Kafka's; the topics with unknown retention."""
    unknown = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)["unknown_retention"]
    ours = adopting.describe(broker.bootstrap)
    assert (ours.ids, ours.partitions) == (said.ids, said.partitions)
    for topic, configs in said.configs.items():
        wanted = {name: entry[0] for name, entry in configs.items() if "TOPIC" in entry[1].upper()}
        wanted |= UNKNOWN_RETENTION if topic in unknown else {}
        found = {name: ours.configs[topic][name][0] for name in wanted}
        assert found == wanted, topic
    return set(unknown)


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("node", NODES)
def test_directory_of_each_node_is_adopted(left: Left, fresh_broker: Any, tmp_path: Path, node: int, how: str) -> None:
    data = getattr(left, how)[node]
    quick = {"log_retention_check_interval_ms": 50, "log_cleaner_backoff_ms": 50}
    broker = adopting.adopted(fresh_broker, data, tmp_path, broker_id=node, **quick).start()
    unknown = check(broker, left.said)
    assert how == "killed" or unknown == set(), "the snapshot has all metadata"
    adopting.produce_old(
        broker.bootstrap, "_schemas"
    )  # rolls the segment, so that retention and the cleaner handle the earlier ones
    for topic in ("events", "altered"):
        assert adopting.offsets(broker.bootstrap, topic) == list(range(RECORDS)), topic
    log = "__cluster_metadata-0"
    assert adopting.fingerprint(broker.data_dir / log) == adopting.fingerprint(data / log)
