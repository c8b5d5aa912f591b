"""Room in a partition's producer table, before anything is written that needs it. Caller holds the partition's lock.

What has been written can no longer be refused: a table that could not grow after an append would answer an error for
records that are in the log. So it grows first, and what it has no room for is not written.
Crash rule: the larger table holds what the former one does when it is published. Dying before wastes its memory, dying
behind leaves a table with room to spare.
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
    """See to room for all of the producers `ids`. NoRoom (an OSError) when /dev/shm has none, and nothing is changed.

    A larger table forgets none of them, so that those which the former one has need no room again.
    """
    producers, former = partition.producers, values[F_PSTATE_GEN]
    missing = producers.missing(former, ids)
    if not missing or producers.has_room(former, missing):
        return
    published = partition.slot.fields()  # and not `values`, which may be ahead of what is written
    with renewal.of(partition.slot):
        published[F_PSTATE_GEN] = values[F_PSTATE_GEN] = producers.grow(former, ids, partition.config.producers_max)
    partition.slot.publish(published)
    producers.retire(former)


def reserve_staged(partition: Partition, values: Fields, staged: Staged) -> None:
    """See to room for all that `staged` has let in unchecked. As `reserve`."""
    reserve(partition, values, staged.ids())


def admit(partition: Partition, values: Fields, staged: Staged, producer_id: int) -> None:
    """Provide for a producer that `staged` did not know. As `reserve`; it is not provided for then."""
    if not partition.producers.has_room(values[F_PSTATE_GEN], len(staged.fresh) + 1):
        reserve(partition, values, staged.ids() | {producer_id})
        staged.moved(partition.producers.table(values[F_PSTATE_GEN]))
    staged.fresh.add(producer_id)
