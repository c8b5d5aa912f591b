"""Starts the controller process: standalone with an embedded tree, or as member of the cluster at zookeeper.connect."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from odradek.broker.controller import adopt_log_dirs
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.member import re_encode_passwords, registration
from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.broker.controller.security import node_kinds
from odradek.broker.controller.snapshot_publisher import SnapshotPublisher
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.process import Process, enter
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


def open_controller(process: Process) -> Controller:
    """Take over the metadata: the tree, the partitions' directories and slots.

    Raises BootError; OdradekError if a retry may succeed: on a full disk, and for every error while the broker is
    already running. Its configuration has worked before, and its workers run without a controller and must not stop.
    """
    try:
        return _join(process) if process.config.clustered else _open_alone(process)
    except TreeUnavailable as error:
        raise OdradekError(str(error)) from None
    except BootError as error:
        if _former(process) is None:
            raise
        raise OdradekError(str(error)) from None


def _open_alone(process: Process) -> Controller:
    try:
        tree = EmbeddedTree(Path(process.config.data_dir, FILE_NAME))
    except (StoreError, OSError) as error:
        raise BootError(str(error)) from None
    with tree.together():  # sync before publishing: no process may see what a power failure undoes
        return _take_over(process, tree)


def _take_over(process: Process, tree: EmbeddedTree) -> Controller:
    state = _open_state(process, tree)
    now_ms = time.time_ns() // 1_000_000
    adopt_log_dirs.expect(state)
    start = state.count_start()
    state.become_controller(now_ms)
    state.register(*registration.advertised(process.config), process.config["broker.rack"], now_ms)
    state.admitted = registration.admitted_alone(process.config)
    state.protocols = process.config.protocols
    re_encode_passwords.re_encode(tree, state.broker, process.config)
    state.load()
    dirs = PartitionDirs(
        process.config.log_dirs, CheckpointLocks(process.run_dir), process.shared.failed_dirs, process.shared.fail_dir
    )
    adopt_log_dirs.adopt_topics(state, dirs, process.config, now_ms)
    adopt_log_dirs.warn_of_unknown(state)
    ringer = Ringer(process.run_dir)
    slot_allocator = SlotAllocator(process.shared, PartitionLocks(process.run_dir / "partition.lock"), start)
    reserve = Reserve(process.config.data_dir, process.config["odradek.disk.reserve.bytes"])
    owner = MetadataOwner(
        state, dirs, slot_allocator, process.config, ringer.ring, reserve, process.running,
        node_kinds.kinds(process.config),
    )  # fmt: skip
    owner.security.prepare()
    owner.users.prepare()
    former = _former(process)
    if former is None and not all(process.config.clean):
        state.bump_leader_epochs(_consumed(state.topics))
    owner.open_partitions(former)
    publication = SnapshotPublisher(process.shared, process.locks, ringer.ring)
    return Controller(process, owner, publication, Doorbell(process.run_dir, roles.CONTROLLER))


def _consumed(topics: Iterable[str]) -> list[str]:
    """Topics whose consumers may have read records that are lost now.

    Not __transaction_state: markers carry its leader epochs, and partitions reject markers with an older epoch. Kafka,
    if it takes the directory back, continues with its own epochs. There is no other coordinator to fence.
    """
    return [name for name in topics if name != topicnames.TRANSACTIONS]


def _join(process: Process) -> Controller:
    """Join the cluster at zookeeper.connect."""
    from odradek.broker.controller.member import join

    ringer = Ringer(process.run_dir)
    member = join.join(process, _former(process))
    return Controller(
        process,
        member,
        SnapshotPublisher(process.shared, process.locks, ringer.ring),
        Doorbell(process.run_dir, roles.CONTROLLER),
    )


def _open_state(process: Process, tree: EmbeddedTree) -> ClusterState:
    try:
        meta = read_meta_properties(process.config.data_dir)
    except (CheckpointError, OSError) as error:
        raise BootError(str(error)) from None
    state = ClusterState(tree, max(0, process.config["broker.id"]))
    cluster_id = meta.cluster_id if meta else None
    if state.prepare(cluster_id) != cluster_id and cluster_id is not None:
        raise BootError(
            f"{process.config.data_dir}: meta.properties says cluster {cluster_id}, {FILE_NAME} says "
            f"{state.cluster_id}: these are two clusters; keep the file of the cluster of these logs, and move the "
            "other away"
        )
    return state


def _former(process: Process) -> Snapshot | None:
    """The last snapshot that a former controller published into this shared memory."""
    version, blob = process.shared.metadata.read()
    return Snapshot.parse(blob, process.config) if version else None


def main(run_dir: Path) -> None:
    """Run the controller of the broker with this run directory until SIGTERM."""
    controller = open_controller(enter(roles.CONTROLLER, run_dir))
    try:
        controller.run()
    finally:
        controller.close()
