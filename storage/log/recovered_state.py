"""The slot state for a recovered partition directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import renewal
from odradek.storage.log import transactions
from odradek.storage.log.sequences import recovered as shared_producers

if TYPE_CHECKING:
    from odradek.ipc.slots import SlotState
    from odradek.storage.log.partition import Partition
    from odradek.storage.recovery.recovery import Recovered


def described(partition: Partition, state: SlotState, found: Recovered) -> SlotState:
    """`state` with all values from the files, to publish; the caller decides state and high watermark.

    Producers get a new generation of their table. Caller holds the lock.
    """
    renewal.renew()
    generation = partition.producers.replace(
        shared_producers(found.producers), state.pstate_gen, partition.config.producers_max
    )
    renewal.renew()
    return state._replace(
        generation=state.generation + 1,
        log_start=found.log_start,
        leo=found.leo,
        unstable=found.first_unstable,
        active_base=found.active_base,
        active_size=found.active_size,
        index_entries=found.index_entries,
        time_entries=found.time_entries,
        time_last=_last_time(partition, found),
        max_timestamp=found.max_timestamp,
        max_timestamp_offset=found.max_timestamp_offset,
        index_pending=found.index_pending,
        pstate_leo=found.leo,
        pstate_gen=generation,
        flushed=min(found.recovery_point, found.leo),
        active_since=found.active_first_timestamp,
        latest_epoch=found.epochs[-1].epoch if found.epochs else -1,
        aborted=transactions.count(partition.directory),
    )


def _last_time(partition: Partition, found: Recovered) -> int:
    if not found.time_entries:
        return -1
    files = partition.active(found.active_base, -2)
    last, _ = files.time.last(found.time_entries)
    partition.close_files()
    return last
