"""Administrative writes to the metadata tree, by any broker or by a separate tool (Kafka's AdminZkClient).

The elected controller sees them through its watches and carries them out: these functions write a topic's assignment
and config; the controller writes its partition states, creates its replicas and elects its leaders.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.tree import notices, quota_nodes, znodes
from odradek.cluster.tree.tree import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
)
from odradek.cluster.tree.znodes import TopicNode
from odradek.security.quotas.entities import Entity, change_of, path_of

_TRIES = 10


def create_topic(tree: Tree, plan: TopicPlan) -> bytes:
    """Request a topic and return its id. NodeExists when a topic of that name exists."""
    topic_id = znodes.random_uuid()
    path = f"{znodes.TOPIC_CONFIGS}/{plan.name}"
    left_over = tree.exists(path) is not None
    try:
        _create(tree, plan, topic_id, left_over)
    except (NoNode, NodeExists) as error:
        if str(error) != path:
            raise
        _create(tree, plan, topic_id, not left_over)  # this ZooKeeper server lags behind
    return topic_id


def _create(tree: Tree, plan: TopicPlan, topic_id: bytes, left_over: bool) -> None:
    """`left_over`: the config of a former topic exists; it is replaced."""
    path, config = f"{znodes.TOPIC_CONFIGS}/{plan.name}", znodes.encode_config(plan.configs)
    operations: list[Operation] = [Set(path, config) if left_over else Create(path, config)]
    operations.append(Create(znodes.topic_path(plan.name), znodes.encode_topic(TopicNode(topic_id, plan.replicas))))
    tree.multi(operations)


def add_partitions(tree: Tree, topic: str, replicas: Mapping[int, list[int]]) -> None:
    """Request more partitions of a topic; partitions that others add concurrently stay. NoNode."""
    path = znodes.topic_path(topic)
    for _ in range(_TRIES):
        data, stat = tree.get(path)
        node = znodes.decode_topic(data)
        merged = node._replace(replicas={**replicas, **node.replicas})
        try:
            tree.set(path, znodes.encode_topic(merged), stat.version)
        except BadVersion:
            continue
        return
    raise BadVersion(path)


def delete_topic(tree: Tree, topic: str) -> None:
    """Request a topic's deletion, unless it is already requested."""
    try:
        tree.create(f"{znodes.DELETE_TOPICS}/{topic}")
    except NodeExists:
        pass


def set_topic_config(tree: Tree, topic: str, configs: Mapping[str, str]) -> None:
    """Replace a topic's config overrides, and notify all brokers."""
    change = notices.encode_config_change("topics", topic)
    _set_config(tree, f"{znodes.TOPIC_CONFIGS}/{topic}", change, configs)


def set_broker_config(tree: Tree, broker: int | None, configs: Mapping[str, str]) -> None:
    """Replace the dynamic configs of a broker, or (None) the cluster-wide ones, and notify all brokers."""
    name = znodes.CLUSTER_WIDE if broker is None else str(broker)
    change = notices.encode_config_change("brokers", name)
    _set_config(tree, znodes.broker_config_path(broker), change, configs)


def set_quotas(tree: Tree, entity: Entity, quotas: Mapping[str, float]) -> None:
    """Replace the client quotas of an entity, and notify all brokers."""
    kind, _, name = change_of(entity).partition("/")
    notice = Create(znodes.CONFIG_CHANGE, notices.encode_config_change(kind, name), sequence=True)
    for _ in range(_TRIES):
        try:
            tree.multi([*quota_nodes.writes(tree, entity, quotas), notice])
        except (BadVersion, NodeExists, NoNode, NotEmpty):  # another broker was faster
            continue
        return
    raise BadVersion(path_of(entity))


def _set_config(tree: Tree, path: str, change: bytes, configs: Mapping[str, str]) -> None:
    data = znodes.encode_config(dict(configs))
    exists = tree.exists(path) is not None
    notice = Create(znodes.CONFIG_CHANGE, change, sequence=True)
    tree.multi([Set(path, data) if exists else Create(path, data), notice])


def producer_ids(tree: Tree, broker: int) -> tuple[int, int]:
    """(first id, count) of a block of producer ids for this broker alone; durable before it is returned."""
    for _ in range(_TRIES):
        data, stat = tree.get(znodes.PRODUCER_IDS)
        first, claimed = znodes.next_producer_block(data, broker)
        try:
            tree.set(znodes.PRODUCER_IDS, claimed, stat.version)
        except BadVersion:  # another broker was faster
            continue
        return first, 1000
    raise BadVersion(znodes.PRODUCER_IDS)
