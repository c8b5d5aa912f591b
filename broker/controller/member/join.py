"""Makes a broker's controller process a member of its cluster: reads the tree, gives slots to the logs found here.

Logs get slots before the broker registers, so that they are recovered when the elected controller sends LeaderAndIsr.
"""

from __future__ import annotations

import logging
from pathlib import Path

from odradek.broker.controller.elected.brokers import read_registered
from odradek.broker.controller.member import re_encode_passwords, registration
from odradek.broker.controller.member.dynamic_configs import broker_configs, topic_config
from odradek.broker.controller.member.member import Member
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.interbroker import zookeeper_session
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.process import Process
from odradek.cluster.metadata.snapshot import Snapshot, Topic
from odradek.cluster.metadata.view import NO_ID, NO_LEADER, PartitionUpdate, View, raw_broker
from odradek.cluster.rules import topicnames
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import quota_nodes, znodes
from odradek.cluster.tree.tree import Tree, TreeError
from odradek.cluster.tree.znodes import BrokerNode, MalformedNode, PartitionState, TopicNode
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.ipc.locks import PartitionLocks

log = logging.getLogger(__name__)

_NOT_YET = PartitionState(NO_LEADER, -1, [], 0)


def join(process: Process, former: Snapshot | None) -> Member:
    """Create this process's member. Raises like `zookeeper_session.open_tree`.

    `former`: the snapshot that a former controller process published into this broker's memory; its session and slots
    are taken over. On failure that session stays open: the broker keeps serving, the next process takes the session
    over, and the registration lasts until then.
    """
    tree = zookeeper_session.open_tree(
        process.config, zookeeper_session.former_session(process.run_dir) if former else None
    )
    try:
        return _join(process, tree, former)
    except (TreeError, MalformedNode) as error:
        if former is None:
            tree.close()
        raise zookeeper_session.failed(process.config, error) from None


def _join(process: Process, tree: ZooKeeperTree, former: Snapshot | None) -> Member:
    store = ClusterState(tree, process.config["broker.id"])
    view = View(store.broker, store.prepare(None))
    start = store.count_start()
    re_encode_passwords.re_encode(tree, store.broker, process.config)
    registered = registration.encoded(process.config)
    view.protocols = dict(former.protocols) if former is not None else process.config.protocols
    _load(tree, view, znodes.decode_broker(registered), former)
    dirs = PartitionDirs(
        process.config.log_dirs, CheckpointLocks(process.run_dir), process.shared.failed_dirs, process.shared.fail_dir
    )
    slot_allocator = SlotAllocator(process.shared, PartitionLocks(Path(process.run_dir) / "partition.lock"), start)
    replicas = ReplicaManager(view, dirs, slot_allocator, process.shared, process.run_dir, process.config)
    replicas.open(former)
    member = Member(process, tree, store, view, replicas, registered, former is not None)
    member.security.prepare()
    member.users.prepare()
    member.controller_requests.least_epoch = _least_epoch(tree, store.broker)
    if former is not None:
        member.controller_requests.restore_progress(former.controller_progress)
    return member


def _least_epoch(tree: Tree, broker: int) -> int:
    """The lowest broker epoch that a controller request for this broker's registration can have.

    A registration of this session stays valid: a former controller process of this start created it. Any other is
    older than this session's write that counted the start.
    """
    registered = tree.exists(f"{znodes.BROKER_IDS}/{broker}")
    if registered is not None and registered.owner == tree.session:
        return registered.czxid
    return tree.get(znodes.STARTS)[1].mzxid


def _load(tree: Tree, view: View, own: BrokerNode, former: Snapshot | None) -> None:
    """Load topics, configs, partitions and brokers from the tree: good enough until the controller sends its state.

    Without configs, what this process publishes first would undo them in all processes until it has read them.

    A topic whose node is malformed, and which was known since this broker registered, keeps its state: this broker may
    lead it, and a controller that also keeps its state does not send it again.
    This broker is included, registered or not: librdkafka stops asking a cluster that has no brokers.
    """
    names = tree.children(znodes.TOPICS)
    nodes = tree.get_many([znodes.topic_path(name) for name in names])
    configs = tree.get_many([f"{znodes.TOPIC_CONFIGS}/{name}" for name in names])
    for name, node, config in zip(names, nodes, configs, strict=True):
        if node is None or topicnames.problem(name):
            continue
        try:
            _load_topic(tree, view, name, znodes.decode_topic(node[0]))
        except MalformedNode as error:
            known = former is not None and name in former.topics
            log.error(
                "topic %s: its node in ZooKeeper is invalid (%s): %s",
                name,
                error,
                "keeping the last valid one" if known else "ignoring the topic",
            )
            if former is not None and known:
                _keep_former(view, former.topics[name])
        if name in view.topics:
            view.topics[name]["config"] = topic_config(name, config[0] if config else None)
    view.dynamic, view.quotas = broker_configs(tree), quota_nodes.read_all(tree)
    brokers = {number: node for number, (node, _) in read_registered(tree).items()}
    view.set_brokers(raw_broker(number, node) for number, node in {**brokers, view.broker: own}.items())


def _keep_former(view: View, topic: Topic) -> None:
    """Keep a topic as last published."""
    for index, one in enumerate(topic.partitions):
        view.apply(
            PartitionUpdate(topic.name, topic.id, index, -1, one.leader, one.leader_epoch, one.isr, -1, one.replicas)
        )


def _load_topic(tree: Tree, view: View, name: str, topic: TopicNode) -> None:
    indexes = sorted(topic.replicas)
    states = tree.get_many([znodes.state_path(name, index) for index in indexes])
    for index, found in zip(indexes, states, strict=True):
        state, version = (znodes.decode_state(found[0]), found[1].version) if found else (_NOT_YET, -1)
        view.apply(
            PartitionUpdate(
                name, topic.id or NO_ID, index, state.controller_epoch, state.leader, state.leader_epoch, state.isr,
                version, topic.replicas[index],
            )
        )  # fmt: skip
