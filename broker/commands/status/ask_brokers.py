"""The queries of `odradek status --cluster`: Metadata and configs from any broker, log directories from each, and
ZooKeeper.

No response to clients contains the controller epoch; ZooKeeper has it, and brokers report ZooKeeper's address. The
epoch is left out where there is no ZooKeeper, or none that can be reached from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeLogDirsRequest

from odradek.broker.commands._shared.client import BROKER, TOPIC, Cluster, Partition, RequestFailed, explain
from odradek.broker.commands.reassign_partitions.moves import moving
from odradek.broker.commands.reassign_partitions.under_reassignment import Reassignment
from odradek.broker.commands.status.overview import Dir, Node, Overview, Row, overview
from odradek.broker.listeners import bracket

TIMEOUT_MS = 3000  # for a response
_TRIES = 5  # attempts, as some brokers may not answer
_SESSION_MS, _CONNECT_MS = 6000, 2000  # with ZooKeeper


def connect(bootstrap: str, properties: Mapping[str, str] = {}) -> Cluster:
    """A connection with short timeouts. Raises OdradekError when no broker answers."""
    made = Cluster(bootstrap, {**properties, "request.timeout.ms": str(TIMEOUT_MS)}, TIMEOUT_MS)
    made.admin._manager.config["socket_connection_setup_timeout_ms"] = TIMEOUT_MS  # not an option of the client
    return made


def collect(cluster: Cluster, credentials: Mapping[str, Any] = {}) -> Overview:
    """The current state of the cluster. Raises OdradekError, or kafka-python's error when no broker answers.

    `credentials` are for ZooKeeper, as of `_shared.zookeeper`.
    """
    seen = _metadata(cluster)
    nodes = _nodes(cluster, seen.brokers)
    controller = -1 if seen.controller_id is None else seen.controller_id
    epoch = _epoch(cluster, nodes, credentials)
    return overview(_rows(cluster, seen.topics, controller), nodes, seen.cluster_id, controller, epoch)


def _metadata(cluster: Cluster) -> Any:
    """Metadata with retries: the client may pick a broker that does not answer; after a timeout it picks another."""
    for _ in range(_TRIES - 1):
        try:
            return cluster.metadata()
        except (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError):
            continue
    return cluster.metadata()


# -- brokers


def _nodes(cluster: Cluster, brokers: Iterable[Any]) -> dict[int, Node]:
    answers = cluster.send_each({broker.node_id: DescribeLogDirsRequest(topics=None) for broker in brokers})
    return {
        broker.node_id: Node(f"{bracket(broker.host)}:{broker.port}", broker.rack, _dirs(answers[broker.node_id]))
        for broker in brokers
    }


def _dirs(answer: Any) -> list[Dir] | None:
    if isinstance(answer, kafka_errors.KafkaError):
        return None
    return [
        Dir(
            result.log_dir,
            explain(result.error_code) if result.error_code else None,
            sum(part.partition_size for topic in result.topics for part in topic.partitions),
            getattr(result, "total_bytes", -1),
            getattr(result, "usable_bytes", -1),
        )
        for result in answer.results
    ]


def _epoch(cluster: Cluster, nodes: dict[int, Node], credentials: Mapping[str, Any]) -> int | None:
    from odradek.cluster.tree import znodes
    from odradek.cluster.tree.tree import TreeError
    from odradek.cluster.tree.zookeeper import ConnectError, ZooKeeperTree

    address = _zookeeper(cluster, [number for number, node in nodes.items() if node.dirs is not None])
    if not address:
        return None
    try:
        tree = ZooKeeperTree(address, _SESSION_MS, _CONNECT_MS, patient=False, **credentials)
    except (ConnectError, ValueError):
        return None
    try:
        return int(tree.get(znodes.CONTROLLER_EPOCH)[0])
    except (TreeError, ValueError):
        return None
    finally:
        tree.close()


def _zookeeper(cluster: Cluster, alive: Sequence[int]) -> str | None:
    """The zookeeper.connect of the first broker that answers."""
    for number in map(str, alive):
        try:
            configs = cluster.configs(BROKER, [number])[number]
        except (RequestFailed, kafka_errors.KafkaError):
            continue
        return next((entry.value for entry in configs if entry.name == "zookeeper.connect"), None)
    return None


# -- partitions


def _rows(cluster: Cluster, topics: Sequence[Any], controller: int) -> dict[Partition, Row]:
    moves = _moves(cluster) if controller >= 0 else {}
    configs = cluster.configs(TOPIC, [topic.name for topic in topics])
    return {
        (topic.name, part.partition_index): _row(part, moves.get((topic.name, part.partition_index)), least)
        for topic in topics
        for least in [_min_isr(configs[topic.name])]
        for part in topic.partitions
    }


def _moves(cluster: Cluster) -> dict[Partition, Reassignment]:
    """Reassignments under way; none where the controller does not answer, which is reported as a separate fault."""
    try:
        return moving(cluster)
    except (RequestFailed, kafka_errors.KafkaError):
        return {}


def _row(part: Any, move: Reassignment | None, min_isr: int) -> Row:
    leader = part.leader_id if part.leader_id >= 0 else None
    adding = [] if move is None else move.adding
    return Row(leader, part.replica_nodes, part.isr_nodes, part.offline_replicas, adding, min_isr)


def _min_isr(configs: Iterable[Any]) -> int:
    return next((int(entry.value) for entry in configs if entry.name == "min.insync.replicas"), 1)
