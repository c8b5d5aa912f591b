"""The controller's in-memory copy of the metadata tree; it writes every change to the tree first.

The tree is authoritative; snapshots are built from the copy. A partition's location on this broker (slot, incarnation,
log directory) is not in the tree: the controller sets it when it opens the partition. Topic deletion takes two steps,
as in Kafka: a mark under /admin/delete_topics, and the removal of the topic's nodes once its logs are gone; a
controller that finds a mark at start continues the deletion.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from odradek.cluster.configs.admitted import NOBODY
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.metadata.rows import EPOCH, ISR, LEADER, NOWHERE, REPLICAS
from odradek.cluster.metadata.snapshot import Snapshot, first_partitions, raw_snapshot
from odradek.cluster.rules import topicnames
from odradek.cluster.tree import quota_nodes, znodes
from odradek.cluster.tree.tree import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Tree
from odradek.cluster.tree.znodes import PartitionState, TopicNode
from odradek.security.quotas.entities import Entity, change_of

log = logging.getLogger(__name__)

TOGETHER = 256  # partition states per write
_ALL: Mapping[str, int] = MappingProxyType({})


class ClusterState:
    """All topics, configs and brokers. One writer: the controller."""

    def __init__(self, tree: Tree, broker: int) -> None:
        self.tree = tree
        self.broker = broker
        self.cluster_id = ""
        self.controller_epoch = 0
        self.brokers: dict[int, dict[str, Any]] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self.dynamic: dict[str, dict[str, str]] = {}
        self.quotas: dict[str, dict[str, float]] = {}
        self.protocols: dict[str, str] = {}  # of this broker's listeners (broker.controller.dynamic_listeners)
        self.admitted = NOBODY
        self.security = 0  # the version of the security metadata that belongs to the next snapshot
        self._without_state: dict[str, list[int]] = {}  # partitions whose states a crash left unwritten
        self.deleting: list[str] = []  # topics that were marked for deletion when the tree was loaded

    def prepare(self, cluster_id: str | None) -> str:
        """Create Kafka's fixed nodes, and the cluster's id if it has none yet (`cluster_id`, or a new one)."""
        for path in znodes.PERSISTENT:
            self.tree.ensure(path)
        if self.tree.find(znodes.CLUSTER_ID) is None:
            cluster_id = cluster_id or znodes.uuid_text(znodes.random_uuid())
            try:
                self.tree.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
            except NodeExists:  # another broker of a new cluster was faster
                pass
        self.cluster_id = znodes.decode_cluster_id(self.tree.get(znodes.CLUSTER_ID)[0])
        return self.cluster_id

    def become_controller(self, now_ms: int) -> None:
        """Become the controller: raise the controller epoch and create the ephemeral /controller node."""
        epoch = int(self.tree.find(znodes.CONTROLLER_EPOCH) or b"0") + 1
        self._write(znodes.CONTROLLER_EPOCH, str(epoch).encode())
        self.controller_epoch = epoch
        self.tree.create(znodes.CONTROLLER, znodes.encode_controller(self.broker, now_ms), ephemeral=True)

    def count_start(self) -> int:
        """The unique number of this start, durable before it is returned."""
        while True:
            try:
                return self._count_start()
            except (NodeExists, BadVersion):  # another broker counted its start meanwhile, or the read was stale
                continue

    def _count_start(self) -> int:
        try:
            data, stat = self.tree.get(znodes.STARTS)
        except NoNode:
            self.tree.create(znodes.STARTS, b"1")
            return 1
        self.tree.set(znodes.STARTS, str(int(data) + 1).encode(), stat.version)
        return int(data) + 1

    def register(
        self, endpoints: Mapping[str, tuple[str, int]], protocols: Mapping[str, str], rack: str | None, now_ms: int
    ) -> None:
        """Register this broker with its advertised endpoints and its rack, or change its registration."""
        data = znodes.encode_broker(dict(endpoints), dict(protocols), rack, now_ms)
        path = f"{znodes.BROKER_IDS}/{self.broker}"
        ends = {name: [host, port] for name, (host, port) in endpoints.items()}
        known = self.broker in self.brokers
        self.brokers[self.broker] = {"id": self.broker, "rack": rack, "endpoints": ends}
        if known:
            self.tree.set(path, data)
        else:
            self.tree.create(path, data, ephemeral=True)

    def load(self) -> None:
        """Read topics, configs and deletion marks from the tree, and write the missing parts of topics."""
        self.topics = {name: self._load_topic(name) for name in self.tree.children(znodes.TOPICS)}
        for name, missing in self._without_state.items():
            log.info("topic %s: writing the missing states of %d partitions", name, len(missing))
            for start in range(0, len(missing), TOGETHER):
                self._repair_states(name, missing[start : start + TOGETHER])
        self.deleting = [name for name in self.tree.children(znodes.DELETE_TOPICS) if name in self.topics]
        for name in set(self.tree.children(znodes.DELETE_TOPICS)) - set(self.topics):
            self.tree.delete(f"{znodes.DELETE_TOPICS}/{name}")
        for name in self.tree.children(znodes.BROKER_CONFIGS):
            configs = znodes.decode_config(self.tree.find(f"{znodes.BROKER_CONFIGS}/{name}"))
            self.dynamic["" if name == znodes.CLUSTER_WIDE else name] = configs
        self.quotas = quota_nodes.read_all(self.tree)

    def _load_topic(self, name: str) -> dict[str, Any]:
        node = znodes.decode_topic(self.tree.get(znodes.topic_path(name))[0])
        if node.id is None:  # written by a Kafka before 2.8
            node = node._replace(id=znodes.random_uuid())
            self.tree.set(znodes.topic_path(name), znodes.encode_topic(node))
        config = znodes.decode_config(self.tree.find(f"{znodes.TOPIC_CONFIGS}/{name}"))
        rows = [self._load_partition(name, index, replicas) for index, replicas in sorted(node.replicas.items())]
        return _topic(name, node.id or b"", config, rows)

    def _load_partition(self, name: str, index: int, replicas: list[int]) -> list[Any]:
        data = self.tree.find(znodes.state_path(name, index))
        if not data:
            self._without_state.setdefault(name, []).append(index)
        state = znodes.decode_state(data) if data else self._first_state(replicas)
        return [NOWHERE, 0, state.leader, state.leader_epoch, replicas, state.isr, NOWHERE]

    def _first_state(self, replicas: list[int]) -> PartitionState:
        alive = [broker for broker in replicas if broker in self.brokers]
        return PartitionState(alive[0] if alive else -1, 0, alive, self.controller_epoch)

    def snapshot(
        self, version: int, static: Mapping[str, Any] | None = None, shown: Mapping[str, int] = _ALL
    ) -> Snapshot:
        """The current snapshot (it shares its parts with this state: encode it before the next change).

        `shown`: the number of visible partitions of each incomplete topic; 0 leaves the topic out.
        """
        brokers = [self.brokers[broker] for broker in sorted(self.brokers)]
        topics = first_partitions(self.topics, shown)
        raw = raw_snapshot(
            version, self.cluster_id, self.broker, brokers, topics, self.dynamic, self.admitted,
            security=self.security, quotas=self.quotas, protocols=self.protocols,
        )  # fmt: skip
        return Snapshot(raw, static)

    # -- changes

    def create_topic(
        self,
        plan: TopicPlan,
        topic_id: bytes | None = None,
        epochs: Mapping[int, int] | None = None,
        states: int | None = None,
    ) -> bytes:
        """Create a topic and return its id (a new one unless given, for existing logs). TreeError changes nothing.

        `epochs` has leader epochs by partition; the default is 0.

        Writes the states of all partitions in the same transaction, or only of the first `states` ones: `write_states`
        writes the others.
        """
        topic_id = topic_id or znodes.random_uuid()
        data = znodes.encode_topic(TopicNode(topic_id, plan.replicas))
        operations: list[Operation] = [Create(znodes.topic_path(plan.name), data)]
        config_path = f"{znodes.TOPIC_CONFIGS}/{plan.name}"
        config_data = znodes.encode_config(plan.configs)
        exists = self.tree.exists(config_path) is not None
        operations.append(Set(config_path, config_data) if exists else Create(config_path, config_data))
        operations.append(Create(znodes.partitions_path(plan.name)))
        rows = [self._new_row(plan.replicas[index], (epochs or {}).get(index, 0)) for index in sorted(plan.replicas)]
        self.tree.multi([*operations, *self._new_states(plan.name, dict(enumerate(rows[:states])))])
        self.topics[plan.name] = _topic(plan.name, topic_id, plan.configs, rows)
        return topic_id

    def _new_row(self, replicas: list[int], epoch: int = 0) -> list[Any]:
        state = self._first_state(replicas)
        return [NOWHERE, 0, state.leader, epoch, list(replicas), list(state.isr), NOWHERE]

    def _new_states(self, name: str, rows: Mapping[int, list[Any]]) -> list[Operation]:
        operations: list[Operation] = []
        for index, row in rows.items():
            state = PartitionState(row[LEADER], row[EPOCH], row[ISR], self.controller_epoch)
            operations.append(Create(znodes.partition_path(name, index)))
            operations.append(Create(znodes.state_path(name, index), znodes.encode_state(state)))
        return operations

    def add_partitions(self, name: str, replicas: Mapping[int, list[int]], states: int | None = None) -> None:
        """Add the planned partitions to a topic. `states`: see `create_topic`."""
        topic = self.topics[name]
        all_replicas = {index: row[REPLICAS] for index, row in enumerate(topic["partitions"])} | dict(replicas)
        data = znodes.encode_topic(TopicNode(bytes.fromhex(topic["id"]), all_replicas))
        rows = {index: self._new_row(replicas[index]) for index in sorted(replicas)}
        first = dict(itertools.islice(rows.items(), states))
        self.tree.multi([Set(znodes.topic_path(name), data), *self._new_states(name, first)])
        topic["partitions"].extend(rows.values())

    def write_states(self, name: str, indexes: Sequence[int]) -> None:
        """Write the states of new partitions. Until all exist, only the topic's node lists all partitions."""
        rows = self.topics[name]["partitions"]
        self.tree.multi(self._new_states(name, {index: rows[index] for index in indexes}))

    def _repair_states(self, name: str, indexes: Sequence[int]) -> None:
        """Write the states that a crash left unwritten."""
        self.tree.ensure(znodes.partitions_path(name))
        rows = self.topics[name]["partitions"]
        states = self._new_states(name, {index: rows[index] for index in indexes})
        self.tree.multi([one for one in states if self.tree.exists(one.path) is None])

    def mark_deletion(self, name: str) -> None:
        """First step of a deletion: from here on a restart continues it."""
        path = f"{znodes.DELETE_TOPICS}/{name}"
        if self.tree.exists(path) is None:
            self.tree.create(path)

    def delete_some_states(self, name: str) -> bool:
        """Before the last step of a deletion: delete a batch of states; False when few enough are left for that step.

        A crash in between leaves a marked topic that lacks states: the next start deletes it.
        """
        path = znodes.partitions_path(name)
        below = self.tree.children(path) if self.tree.exists(path) is not None else []
        if len(below) <= TOGETHER:
            return False
        some = below[:TOGETHER]
        self.tree.multi([operation for index in some for operation in self.tree.removal(f"{path}/{index}")])
        return True

    def delete_topic(self, name: str, unrenamed: bool = False) -> None:
        """Last step of a deletion: remove the topic's nodes, its config and the mark.

        `unrenamed`: some of its directories still have their names; this records its id for the next start.
        """
        paths = (znodes.topic_path(name), f"{znodes.TOPIC_CONFIGS}/{name}", f"{znodes.DELETE_TOPICS}/{name}")
        operations = [operation for path in paths for operation in self.tree.removal(path)]
        if unrenamed:
            note = znodes.unrenamed_path(bytes.fromhex(self.topics[name]["id"]))
            operations += [Create(path) for path in self.tree.missing(note)]
        self.tree.multi(operations)
        self.topics.pop(name, None)

    def unrenamed(self) -> list[str]:
        """The ids, as text, of deleted topics that still have directories to rename."""
        try:
            return self.tree.children(znodes.UNRENAMED)
        except NoNode:
            return []

    def forget_unrenamed(self, ids: Sequence[str]) -> None:
        """Drop the ids of deleted topics whose directories are all renamed."""
        if ids:
            self.tree.multi([Delete(f"{znodes.UNRENAMED}/{topic_id}") for topic_id in ids])

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's config overrides."""
        self._write(f"{znodes.TOPIC_CONFIGS}/{name}", znodes.encode_config(configs))
        self.topics[name]["config"] = configs

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of a broker, or (None) the cluster-wide ones."""
        self._write(znodes.broker_config_path(broker), znodes.encode_config(configs))
        self.dynamic["" if broker is None else str(broker)] = configs

    def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace the client quotas of an entity."""
        self.tree.multi(quota_nodes.writes(self.tree, entity, quotas))
        self.quotas.pop(change_of(entity), None)
        if quotas:
            self.quotas[change_of(entity)] = dict(quotas)

    def bump_leader_epochs(self, names: Iterable[str]) -> None:
        """Raise the leader epochs of the partitions of `names` that this broker leads.

        Their log end offsets may have changed (KIP-320).
        """
        operations: list[Operation] = []
        bumped = []
        for name in names:
            for index, row in enumerate(self.topics[name]["partitions"]):
                if row[LEADER] == self.broker:
                    state = PartitionState(row[LEADER], row[EPOCH] + 1, row[ISR], self.controller_epoch)
                    operations.append(self._state_write(name, index, state))
                    bumped.append(row)
        if operations:
            self.tree.multi(operations)
        for row in bumped:
            row[EPOCH] += 1

    def _state_write(self, name: str, index: int, state: PartitionState) -> Operation:
        return Set(znodes.state_path(name, index), znodes.encode_state(state))

    def producer_ids(self) -> tuple[int, int]:
        """(first id, count) of a block for this broker alone; durable before it is returned."""
        data, stat = self.tree.get(znodes.PRODUCER_IDS)
        first, claimed = znodes.next_producer_block(data, self.broker)
        self.tree.set(znodes.PRODUCER_IDS, claimed, stat.version)
        return first, 1000

    def skip_producer_ids(self, upto: int) -> None:
        """Give out no ids below `upto` from now on."""
        data, stat = self.tree.get(znodes.PRODUCER_IDS)
        if znodes.next_producer_block(data, self.broker)[0] < upto:
            self.tree.set(
                znodes.PRODUCER_IDS, znodes.encode_producer_block(self.broker, upto - 1, upto - 1), stat.version
            )

    # -- 0.8's offset commits (OffsetCommit v0)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Write one offset where ZooKeeper-based consumers look for it."""
        self._write(znodes.consumer_offset_path(group, topic, partition), str(offset).encode())

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """An offset that `commit_offset` wrote, or None."""
        data = self.tree.find(znodes.consumer_offset_path(group, topic, partition))
        return int(data) if data else None

    def _write(self, path: str, data: bytes) -> None:
        """Set a node; create it and its missing parents first."""
        while missing := self.tree.missing(path):
            try:
                self.tree.multi([*(Create(above) for above in missing[:-1]), Create(path, data)])
            except NodeExists:  # another broker created it at the same time
                continue
            return
        self.tree.set(path, data)


def _topic(name: str, topic_id: bytes, config: dict[str, str], rows: list[list[Any]]) -> dict[str, Any]:
    internal = name in topicnames.INTERNAL
    return {"id": topic_id.hex(), "internal": internal, "config": config, "partitions": rows}
