"""Starts the controller process: standalone with an embedded tree, or as member of the cluster at zookeeper.connect."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from odradek.broker import listeners
from odradek.broker.controller import adopt_log_dirs
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.member import join
from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.controller.snapshot_publisher import Publication
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.process import process
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.process import Process
from odradek.cluster.configs import admitted
from odradek.cluster.configs.admitted import Admitted
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules import topicnames
from odradek.cluster.state import ClusterState
from odradek.cluster.tree.embedded import FILE_NAME, EmbeddedTree, StoreError
from odradek.cluster.tree.tree import TreeUnavailable
from odradek.ipc import roles
from odradek.ipc.doorbell import Doorbell, Ringer
from odradek.ipc.locks import PartitionLocks
from odradek.storage.dirs.reserve import Reserve
from odradek.storage.files.checkpoints import CheckpointError, read_meta_properties


def open_controller(me: Process) -> Controller:
    """Take over the metadata: the tree, the partitions' directories and slots.

    Raises BootError; OdradekError if a retry may succeed: on a full disk, and for every error while the broker is
    already running. Its configuration has worked before, and its workers run without a controller and must not stop.
    """
    try:
        return _join(me) if me.config.clustered else _open_alone(me)
    except TreeUnavailable as error:
        raise OdradekError(str(error)) from None
    except BootError as error:
        if _former(me) is None:
            raise
        raise OdradekError(str(error)) from None


def _open_alone(me: Process) -> Controller:
    try:
        tree = EmbeddedTree(Path(me.config.data_dir, FILE_NAME))
    except (StoreError, OSError) as error:
        raise BootError(str(error)) from None
    with tree.together():  # sync before publishing: no process may see what a power failure undoes
        return _take_over(me, tree)


def _take_over(me: Process, tree: EmbeddedTree) -> Controller:
    state = _open_state(me, tree)
    now_ms = time.time_ns() // 1_000_000
    adopt_log_dirs.expect(state)
    start = state.count_start()
    state.become_controller(now_ms)
    state.register(*_advertised(me), me.config["broker.rack"], now_ms)
    state.admitted = _admitted(me)
    state.load()
    dirs = PartitionDirs(me.config.log_dirs, CheckpointLocks(me.run_dir), me.shared.failed_dirs, me.shared.fail_dir)
    adopt_log_dirs.adopt_topics(state, dirs, me.config, now_ms)
    adopt_log_dirs.warn_of_unknown(state)
    ringer = Ringer(me.run_dir)
    book = SlotAllocator(me.shared, PartitionLocks(me.run_dir / "partition.lock"), start)
    reserve = Reserve(me.config.data_dir, me.config["odradek.disk.reserve.bytes"])
    owner = MetadataOwner(state, dirs, book, me.config, ringer.ring, reserve, me.running)
    former = _former(me)
    if former is None and not all(me.config.clean):
        state.bump_leader_epochs(_consumed(state.topics))
    owner.open_partitions(former)
    publication = Publication(me.shared, me.locks, ringer.ring)
    return Controller(me, owner, publication, Doorbell(me.run_dir, roles.CONTROLLER))


def _consumed(topics: Iterable[str]) -> list[str]:
    """Topics whose consumers may have read records that are lost now.

    Not __transaction_state: markers carry its leader epochs, and partitions reject markers with an older epoch. Kafka,
    if it takes the directory back, continues with its own epochs. There is no other coordinator to fence.
    """
    return [name for name in topics if name != topicnames.TRANSACTIONS]


def _join(me: Process) -> Controller:
    """Join the cluster at zookeeper.connect."""
    ringer = Ringer(me.run_dir)
    member = join.join(me, _former(me))
    return Controller(me, member, Publication(me.shared, me.locks, ringer.ring), Doorbell(me.run_dir, roles.CONTROLLER))


def _open_state(me: Process, tree: EmbeddedTree) -> ClusterState:
    try:
        meta = read_meta_properties(me.config.data_dir)
    except (CheckpointError, OSError) as error:
        raise BootError(str(error)) from None
    state = ClusterState(tree, max(0, me.config["broker.id"]))
    wanted = meta.cluster_id if meta else None
    if state.prepare(wanted) != wanted and wanted is not None:
        raise BootError(
            f"{me.config.data_dir}: meta.properties says cluster {wanted}, {FILE_NAME} says {state.cluster_id}: these "
            "are two clusters; keep the file of the cluster of these logs, and move the other away"
        )
    return state


def _advertised(me: Process) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
    """The advertised endpoints by listener name, and each listener's security protocol."""
    protocols = listeners.parse_protocol_map(me.config["listener.security.protocol.map"])
    endpoints = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in me.config.advertised}
    return endpoints, {name: protocols.get(name, name) for name in endpoints}


def _admitted(me: Process) -> Admitted:
    """A standalone broker admits inter-broker requests from its own addresses and from the configured ones."""
    own = [endpoint.host for endpoint in me.config.advertised if listeners.literal(endpoint.host)]
    return Admitted(listeners.between_brokers(me.config), own, admitted.parse_allowed(me.config[admitted.ALLOWED]))


def _former(me: Process) -> Snapshot | None:
    """The last snapshot that a former controller published into this shared memory."""
    version, blob = me.shared.metadata.read()
    return Snapshot.parse(blob, me.config) if version else None


def main(run_dir: Path) -> None:
    """Run the controller of the broker with this run directory until SIGTERM."""
    controller = open_controller(process.enter(roles.CONTROLLER, run_dir))
    try:
        controller.run()
    finally:
        controller.close()
