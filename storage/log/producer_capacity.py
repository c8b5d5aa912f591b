"""Reserving room in a partition's producer table before a write that needs it. Caller holds the partition's lock.

A written batch can no longer be refused: a table that could not grow after an append would cause an error response for
records in the log. So it grows first, and a batch without room is not written.
Crash rule: the larger table has the contents of the former one when it is published. A death before that wastes its
memory, a death after it leaves a table with spare room.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from odradek.ipc import renewal
from odradek.ipc.slots import F_PSTATE_GEN

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition
    from odradek.storage.log.sequences import Staged


def reserve(partition: Partition, values: Fields, ids: Collection[int]) -> None:
    """Reserve room for all producers in `ids`. SharedMemoryFull (an OSError), without a change, when /dev/shm is full.

    A larger table drops none of them, so that those in the former table need no room again.
    """
    producers, former = partition.producers, values[F_PSTATE_GEN]
    missing = producers.missing(former, ids)
    if not missing or producers.has_room(former, missing):
        return
    published = partition.slot.fields()  # not `values`, which may be ahead of the written data
    with renewal.of(partition.slot):
        published[F_PSTATE_GEN] = values[F_PSTATE_GEN] = producers.grow(former, ids, partition.config.producers_max)
    partition.slot.publish(published)
    producers.retire(former)


def reserve_staged(partition: Partition, values: Fields, staged: Staged) -> None:
    """Reserve room for all producers that `staged` has admitted without a check. As `reserve`."""
    reserve(partition, values, staged.ids())


def admit(partition: Partition, values: Fields, staged: Staged, producer_id: int) -> None:
    """Reserve room for a producer new to `staged`. As `reserve`; on SharedMemoryFull it has none."""
    if not partition.producers.has_room(values[F_PSTATE_GEN], len(staged.fresh) + 1):
        reserve(partition, values, staged.ids() | {producer_id})
        staged.moved(partition.producers.table(values[F_PSTATE_GEN]))
    staged.fresh.add(producer_id)
