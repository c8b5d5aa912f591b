"""The last steps of a clean stop, when every other process has gone: flush, checkpoints, the mark.

Kafka's order: producers' snapshots, sync of every log, the three checkpoints, and `.kafka_cleanshutdown` last,
per log directory. A directory whose disk fails, or with a partition that could not be flushed, gets no mark: its
partitions are checked at the next start.
"""

from __future__ import annotations

import logging

from odradek.broker import flushing
from odradek.broker.boot import Boot
from odradek.broker.checkpointing import PICK, Checkpoints
from odradek.broker.partitions import Partitions
from odradek.ipc import roles, slots
from odradek.ipc.slots import Fields
from odradek.storage import checkpoints, roll, snapshots
from odradek.storage.partition import Busy, Gone, Partition
from odradek.storage.sequences import for_snapshot

log = logging.getLogger(__name__)


def finish(boot: Boot) -> None:
    """Sync all logs, write the checkpoints and mark the clean shutdown of every log directory."""
    partitions = Partitions(boot.shared, boot.run_dir, boot.config, roles.SUPERVISOR)
    partitions.follow()
    unclean: set[int] = set()
    for partition in partitions:
        unclean |= _settle(partition)
    written = Checkpoints(boot.config.log_dirs)
    broken = boot.shared.failed_dirs()
    for name in PICK:
        unclean |= written.write(partitions, name, broken).keys()
    unclean |= set(broken)
    for index, log_dir in enumerate(boot.config.log_dirs):
        if index not in unclean:
            _mark(log_dir)
    partitions.log.close()


def _settle(partition: Partition) -> set[int]:
    """Flush one partition; the index of its log directory when that cannot be called clean."""
    state = partition.state()
    if state.incarnation != partition.incarnation or state.state in (slots.FREE, slots.DELETING):
        return set()
    if state.state in (slots.OFFLINE, slots.RECOVERING):  # damaged, or stopped before it was looked at
        return {state.log_dir}
    try:
        with flushing.patiently(partition) as values:
            _snapshot_producers(partition, values)
            _seal_time_index(partition, values)
        flushing.sync(partition)
        flushing.sync_epochs(partition)
    except (OSError, Busy, Gone) as error:
        log.error("%r was not flushed: %s", partition, error or type(error).__name__)
        return {state.log_dir}
    return set()


def _snapshot_producers(partition: Partition, values: Fields) -> None:
    """So that the next start need not read the log to know them. Caller holds the lock."""
    table = partition.producers.table(values[slots.F_PSTATE_GEN])
    if table is not None:
        producers = for_snapshot(table.entries())
        snapshots.write_snapshot(partition.directory, values[slots.F_LEO], producers)


def _seal_time_index(partition: Partition, values: Fields) -> None:
    """Caller holds the lock."""
    roll.seal_time_index(partition, values)
    partition.slot.publish(values)


def _mark(log_dir: str) -> None:
    try:
        checkpoints.mark_clean_shutdown(log_dir)
    except OSError as error:
        log.error("%s: %s", log_dir, error.strerror)
