"""A marker that a replaced coordinator sends late never ends the producer's next transaction.

The producer keeps its epoch between transactions below EndTxn version 5. The next coordinator ends the transaction that
the former one has prepared, in all partitions of it, before the next one begins: so each of them knows its epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records import batch_v2
from odradek.storage.compaction import compaction
from odradek.storage.compaction.compaction import Compaction, DedupeBuffer
from odradek.storage.files import checkpoints
from odradek.storage.log import control_batch, leader_or_follower, opening, roll, truncate
from odradek.storage.log.log import Log
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition
from odradek.storage.producers import snapshots

from ..live import NOW, Live, batch, live, note_flushed, put
from ..test_death import _dies_at
from .following import receive, stored

FORMER, PRESENT = 1, 2
DAY = 86_400_000


def write(partition: Partition) -> None:
    """The producer's next batch."""
    with partition.locked() as values:
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        sequence = table.last_sequence(table.find(7)) + 1 if table is not None else 0
    who = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    data = batch_v2.build([(0, NOW, b"k", b"v", [])], base_offset=0, attributes=TRANSACTIONAL, **who)
    one = Batch(memoryview(bytearray(data)), 1, NOW, 7, 0, sequence)
    one.transactional = True
    put(partition, one)
    assert not one.error


def mark(partition: Partition, coordinator: int, commit: bool = True) -> int:
    return control_batch.write_marker(partition, 7, 0, coordinator, commit, NOW)


def first_transaction(partition: Partition) -> None:
    write(partition)
    assert mark(partition, PRESENT) == errors.NONE
    put(partition, batch(b"of the same key"))


def restarted(world: Live, clean: bool) -> Partition:
    again = world.partition(1)
    again.slot.publish(slots.SlotState(incarnation=again.incarnation, state=slots.RECOVERING))
    assert isinstance(again.owner, Log)
    opening.open_all(again.owner, [("t", 0)], [opening.LogDir.read(str(world.root), clean)], lambda: None)
    return again


def nothing(world: Live) -> Partition:
    return world.partition()


def many_producers(world: Live) -> Partition:
    put(world.partition(), *[batch(b"v", producer=one, sequence=0) for one in range(100, 150)])
    return world.partition(1)


def death_of_a_worker(world: Live) -> Partition:
    """Behind the batch and before the producer table, among other moments."""
    for step in range(60):
        at = step
        if not _dies_at(world, step, lambda one, at=at: put(one, batch(b"w", producer=8, sequence=at))):  # type: ignore[misc]  # a default in a lambda
            break
        with world.partition(2).locked():
            pass
    return world.partition(2)


def unclean_start(world: Live) -> Partition:
    return restarted(world, False)


def clean_start(world: Live) -> Partition:
    partition = world.partition()
    table = partition.producers.table(partition.state().pstate_gen)
    snapshots.write_table(partition.directory, partition.state().leo, table)
    checkpoints.write_offsets(world.root, checkpoints.RECOVERY_POINT, {("t", 0): partition.state().leo})
    return restarted(world, True)


def truncation(world: Live) -> Partition:
    partition = world.partition()
    end = partition.state().leo
    write(partition)
    assert mark(partition, PRESENT + 1) == errors.NONE
    with partition.locked() as values:
        truncate.truncate(partition, values, end)
    return partition


def replication(world: Live) -> Partition:
    """The leader that has written the marker dies, and this follower leads."""
    data = stored(world.partition())
    partition = world.partition()
    with partition.locked() as values:
        truncate.truncate(partition, values, 0)
        leader_or_follower.become_follower(partition, values, 5)
    receive(partition, data)
    with partition.locked() as values:
        leader_or_follower.become_leader(partition, values, 6, [], [0], 0)
    return partition


def cleaner(world: Live) -> Partition:
    """The transaction's record is removed, and delete.retention.ms goes by."""
    partition = world.partition()
    for now in range(NOW, NOW + 8 * DAY, 2 * DAY):
        with partition.locked() as values:
            roll.roll(partition, values)
        note_flushed(partition)
        put(partition, batch(b"later"), now_ms=now)
        what = compaction.find_range(partition, 0, now)
        for _ in Compaction(world.partition(2), what, DedupeBuffer(), now).steps():
            pass
    return restarted(world, False)


WAYS = [nothing, many_producers, death_of_a_worker, unclean_start, clean_start, truncation, replication,
        cleaner]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begins", [True, False])
def test_late_marker_of_a_replaced_coordinator_ends_no_transaction(
    tmp_path: Path, way: Callable[[Live], Partition], begins: bool
) -> None:
    """`begins`: the next transaction begins before what happens on the `way`, or behind it."""
    with live(tmp_path, cleanup_policy="compact", delete_retention_ms=DAY) as world:
        first_transaction(world.partition())
        if begins:
            write(world.partition())
        partition = way(world)
        if not begins:
            write(partition)
        first, end = partition.state().unstable, partition.state().leo
        assert first >= 0
        for commit in (False, True):
            assert mark(partition, FORMER, commit) == errors.TRANSACTION_COORDINATOR_FENCED
        assert (partition.state().unstable, partition.state().leo) == (first, end)
        assert mark(partition, PRESENT) == errors.NONE
        assert partition.state().unstable == -1
