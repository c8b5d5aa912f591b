"""Room in a partition's producer table, before anything is written that needs it. Caller holds the partition's lock.

What has been written can no longer be refused: a table that could not grow after an append would answer an error for
records that are in the log. So it grows first, and what it has no room for is not written.
Crash rule: the larger table holds what the former one does when it is published. Dying before wastes its memory, dying
behind leaves a table with room to spare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc.slots import F_PSTATE_GEN

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.partition import Partition
    from odradek.storage.sequences import Staged


def reserve(partition: Partition, values: Fields, count: int) -> None:
    """See to room for `count` more producers. NoRoom (an OSError) when /dev/shm has none, and nothing is changed."""
    producers, former = partition.producers, values[F_PSTATE_GEN]
    if producers.has_room(former, count):
        return
    published = partition.slot.fields()  # and not `values`, which may be ahead of what is written
    published[F_PSTATE_GEN] = values[F_PSTATE_GEN] = producers.grow(former, count, partition.config.producers_max)
    partition.slot.publish(published)
    producers.retire(former)


def reserve_staged(partition: Partition, values: Fields, staged: Staged) -> None:
    """See to room for all that `staged` has let in unchecked. As `reserve`."""
    table = partition.producers.table(values[F_PSTATE_GEN])
    ids = {row[0] for row in staged.rows}
    new = len(ids) if table is None else sum(table.find(one) < 0 for one in ids)
    if new:
        reserve(partition, values, new)


def admit(partition: Partition, values: Fields, staged: Staged, producer_id: int) -> None:
    """Provide for a producer that `staged` did not know. As `reserve`; it is not provided for then."""
    reserve(partition, values, len(staged.fresh) + 1)
    staged.moved(partition.producers.table(values[F_PSTATE_GEN]))
    staged.fresh.add(producer_id)
