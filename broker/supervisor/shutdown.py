"""The last steps of a clean stop, when every other process has ended: flush, checkpoints, the mark.

Kafka's order: producers' snapshots, sync of every log, the three checkpoints, and `.kafka_cleanshutdown` last,
per log directory. A directory whose disk fails, or with a partition that could not be flushed, gets no mark: its
partitions are checked at the next start. Nor does a directory with a log that is not in the metadata, as this run may
have written to it; if there was never any metadata, a directory stays as clean as it was before.

No other process is left, so this one first finds the files to sync, for all partitions, and then several threads sync
them: file systems combine concurrent syncs, so a stop of thousands of partitions takes a fraction of the time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from odradek.broker.config import BrokerConfig
from odradek.broker.process import flush
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.checkpoint_writer import PICK, CheckpointWriter
from odradek.broker.process.partitions import Partitions
from odradek.broker.supervisor import stop_limits
from odradek.broker.supervisor.boot import Boot
from odradek.ipc import roles, slots
from odradek.ipc.slots import Fields
from odradek.storage.dirs import logdirs
from odradek.storage.files import checkpoints
from odradek.storage.log import roll
from odradek.storage.log.flush import Flush
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.storage.producers import snapshots
from odradek.storage.segment import epochs

log = logging.getLogger(__name__)

THREADS = 32  # they mostly wait, and a file system's journal commits concurrent syncs together
_LAZY = (epochs.FILE_NAME, checkpoints.PARTITION_METADATA)  # files that are written without waiting for the disk
_FAULTS = (OSError, LockNotAvailable, PartitionRemoved)


def finish(boot: Boot) -> None:
    """Sync all logs, write the checkpoints and mark the clean shutdown of every log directory.

    In a cluster, first ends this broker's ZooKeeper session, if a process left one: new leaders need not wait for it.
    """
    if boot.config.clustered:
        from odradek.broker.interbroker import zookeeper_session

        zookeeper_session.end_session(boot.config)
    partitions = Partitions(boot.shared, boot.run_dir, boot.config, roles.SUPERVISOR)
    partitions.follow()
    unclean = _settle(partitions)
    written = CheckpointWriter(boot.config.log_dirs, CheckpointLocks(boot.run_dir), stop_limits.WRITER_S)
    broken = boot.shared.failed_dirs()
    for name in PICK:
        unclean |= written.write(partitions, name, broken).keys()
    unclean |= set(broken) | _unknown(boot.config, partitions)
    for index, log_dir in enumerate(boot.config.log_dirs):
        if index not in unclean:
            _mark(log_dir)
    partitions.log.close()


def _unknown(config: BrokerConfig, partitions: Partitions) -> set[int]:
    """The log directories that have, or may have, logs unknown to the metadata."""
    if not partitions.snapshot.version:
        return {index for index in range(len(config.log_dirs)) if not any(config.clean[index : index + 1])}
    known = set(partitions.names())
    return {index for index, path in enumerate(config.log_dirs) if not logdirs.holds_only(path, known)}


def _settle(partitions: Partitions) -> set[int]:
    """Flush all partitions; returns the indexes of the log directories that are not clean."""
    unclean: set[int] = set()
    begun = list(_begin(partitions, unclean))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(Flush.sync, begun))
    for one in begun:
        try:
            flush.publish(one)
        except _FAULTS as fault:
            _not_flushed(one.partition, fault)
            unclean.add(one.state.log_dir)
    return unclean


def _begin(partitions: Partitions, unclean: set[int]) -> Iterator[Flush]:
    """Write what a stop adds to the partitions, and find the files to sync."""
    for partition in partitions:
        state = partition.state()
        if not state.serves(partition.incarnation):
            continue
        if state.state in (slots.OFFLINE, slots.RECOVERING):  # damaged, or stopped before its recovery
            unclean.add(state.log_dir)
            continue
        try:
            yield _prepare(partition)
        except _FAULTS as fault:
            _not_flushed(partition, fault)
            unclean.add(state.log_dir)


def _prepare(partition: Partition) -> Flush:
    with flush.patiently(partition) as values:
        written = _snapshot_producers(partition, values)
        _seal_time_index(partition, values)
    one = Flush.begin(partition)
    lazy = [os.path.join(partition.directory, name) for name in _LAZY]
    one.paths = list(dict.fromkeys([*one.paths, *lazy, *written]))
    return one


def _not_flushed(partition: Partition, fault: Exception) -> None:
    log.error("%r: flush failed: %s", partition, fault or type(fault).__name__)


def _snapshot_producers(partition: Partition, values: Fields) -> list[str]:
    """Spares the next start reading the log for them; returns the paths to sync. Caller holds the lock."""
    table = partition.producers.table(values[slots.F_PSTATE_GEN])
    if table is None:
        return []
    path = snapshots.write_table(partition.directory, values[slots.F_LEO], table)
    return [str(path), partition.directory]


def _seal_time_index(partition: Partition, values: Fields) -> None:
    """Caller holds the lock."""
    roll.seal_time_index(partition, values)
    partition.slot.publish(values)


def _mark(log_dir: str) -> None:
    try:
        checkpoints.mark_clean_shutdown(log_dir)
    except OSError as error:
        log.error("%s: %s", log_dir, error.strerror)
