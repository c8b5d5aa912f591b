"""A full /dev/shm: batches of producers that do not fit into the table are refused, and everything else continues."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from odradek.ipc import slots
from odradek.ipc.region import SharedMemoryFull
from odradek.protocol import errors
from odradek.storage.log import append, control_batch, opening, roll, truncate
from odradek.storage.log.log import Log
from odradek.storage.log.log_batch import NOT_ASKED
from odradek.storage.log.partition import Partition
from odradek.storage.producers import snapshots

from ..live import NOW, Live, batch, live, note_flushed, put, records
from .following import follower, receive, sent
from .test_append_and_read import broken

SERVED = 10  # producers that the first table has room for


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """/dev/shm has no room for more, until `undo`."""

    def fill() -> None:
        monkeypatch.setattr(os, "posix_fallocate", broken(errno.ENOSPC))

    monkeypatch.fill = fill  # type: ignore[attr-defined]  # the fixture adds it
    return monkeypatch


def known(partition: Partition) -> set[int]:
    with partition.locked() as values:
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        return {entry.producer_id for entry in table.entries()} if table is not None else set()


def stored(partition: Partition) -> list[bytes]:
    return [value for _, value in records(partition)]


def first_producers(made: Live) -> Partition:
    partition = made.partition()
    put(partition, *[batch(b"%d" % one, producer=one, sequence=0) for one in range(SERVED)])
    return partition


def test_only_batches_of_new_producers_are_refused(tmp_path: Path, full: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as made:
        partition = first_producers(made)
        full.fill()  # type: ignore[attr-defined]  # the fixture adds it
        new, plain, old = batch(b"new", producer=50, sequence=0), batch(b"plain"), batch(b"old", producer=3, sequence=1)
        put(partition, new, plain, old)
        assert (new.error, new.base_offset) == (errors.KAFKA_STORAGE_ERROR, -1)
        assert [plain.error, old.error] == [0, 0]
        assert stored(partition)[SERVED:] == [b"plain", b"old"]
        assert partition.slot.dirty == 0
        assert known(made.partition(1)) == set(range(SERVED))
        full.undo()
        again = batch(b"new", producer=50, sequence=0)
        assert put(partition, again) == [SERVED + 2]
        assert 50 in known(made.partition(1))


def test_a_table_grows_for_all_of_one_append(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        partition = made.partition()
        batches = [batch(b"v", producer=one, sequence=0) for one in range(100)]
        batches += [batch(b"v", producer=one, sequence=1) for one in range(100)]
        put(partition, *batches)
        assert {one.error for one in batches} == {0}
        assert known(made.partition(1)) == set(range(100))
        assert partition.state().pstate_leo == 200


def test_grown_table_stays_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger table is published before the write, without the producers of the append."""
    with live(tmp_path) as made:
        partition = first_producers(made)
        monkeypatch.setattr(os, "pwritev", broken(errno.ENOSPC))
        new = batch(b"new", producer=50, sequence=0)
        put(partition, new)
        monkeypatch.undo()
        assert new.error == errors.KAFKA_STORAGE_ERROR
        assert known(made.partition(1)) == set(range(SERVED))
        assert put(partition, batch(b"new", producer=50, sequence=0)) == [SERVED]


def test_follower_appends_again_once_there_is_memory(tmp_path: Path, full: pytest.MonkeyPatch) -> None:
    with follower(tmp_path) as made:
        partition = made.partition()
        data = b"".join(sent(one, producer=(one, 0, 0)) for one in range(20))
        full.fill()  # type: ignore[attr-defined]  # the fixture adds it
        with pytest.raises(SharedMemoryFull):
            receive(partition, data)
        assert partition.state().leo == 0
        full.undo()
        assert receive(partition, data) == 20
        assert known(made.partition(1)) == set(range(20))


def test_a_start_without_room_takes_that_partition_offline(tmp_path: Path, full: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as made:
        partition = first_producers(made)
        incarnation = partition.incarnation
        partition.slot.publish(slots.SlotState(incarnation=incarnation, state=slots.RECOVERING))
        full.fill()  # type: ignore[attr-defined]  # the fixture adds it
        found = opening.LogDir(False, False, {}, {}, {}, {})
        assert isinstance(partition.owner, Log)
        assert opening.open_all(partition.owner, [("t", 0)], [found], lambda: None) == 1
        assert partition.state().state == slots.OFFLINE


def test_transactional_offsets_need_memory_too(tmp_path: Path, full: pytest.MonkeyPatch) -> None:
    """Offsets of a transaction, which the coordinator writes without sequences."""
    with live(tmp_path) as made:
        partition = first_producers(made)
        full.fill()  # type: ignore[attr-defined]  # the fixture adds it
        own = batch(b"own", producer=50, sequence=0)
        own.sequence, own.transactional = -1, True
        with partition.locked() as values:
            append.append(partition, values, [own], NOW)
        assert own.error == errors.KAFKA_STORAGE_ERROR
        assert partition.state().unstable == -1


def open_transaction(partition: Partition, producer: int) -> None:
    one = batch(b"txn", producer=producer, sequence=0)
    one.transactional = True
    put(partition, one)


def test_producers_max_keeps_the_latest_and_open_transactions(tmp_path: Path) -> None:
    with live(tmp_path, producers_max=100) as made:
        partition = made.partition()
        open_transaction(partition, 7)
        for one in range(1000, 1099):
            put(partition, batch(b"v", producer=one, sequence=0))
        assert len(known(made.partition(1))) == 100
        put(partition, batch(b"v", producer=1000, sequence=1))  # the oldest, and then the one that wrote last
        put(partition, batch(b"v", producer=2000, sequence=0))
        assert known(made.partition(1)) == {7, 1000, 2000, *range(1050, 1099)}
        put(partition, batch(b"v", producer=1000, sequence=2))
        retry = batch(b"v", producer=1000, sequence=1)
        assert put(partition, retry) == [100]
        assert partition.state().unstable == 0
        for one in range(3000, 5000):
            put(partition, batch(b"v", producer=one, sequence=0))
            assert partition.producers.table(partition.state().pstate_gen).used <= 100  # type: ignore[union-attr]  # it has a table
        assert 7 in known(made.partition(1))


def test_producers_max_keeps_a_producer_that_was_just_fenced(tmp_path: Path) -> None:
    """Its marker has dropped the batches of its former epoch."""
    with live(tmp_path, producers_max=SERVED) as made:
        partition = made.partition()
        open_transaction(partition, 7)
        put(partition, *[batch(b"v", producer=one, sequence=0) for one in range(1000, 999 + SERVED)])
        assert control_batch.write_marker(partition, 7, 1, 0, False, NOW) == errors.NONE
        put(partition, batch(b"v", producer=2000, sequence=0))
        assert 7 in known(partition) and 1000 not in known(partition)
        zombie = batch(b"v", producer=7, sequence=1)
        put(partition, zombie)
        assert zombie.error == errors.INVALID_PRODUCER_EPOCH


def fenced(partition: Partition) -> None:
    """A producer that is fenced after others have written, in a table that is full then."""
    open_transaction(partition, 7)
    put(partition, *[batch(b"v", producer=one, sequence=0) for one in range(1000, 999 + SERVED)])
    assert control_batch.write_marker(partition, 7, 1, 0, False, NOW) == errors.NONE


def check_fenced(partition: Partition) -> None:
    """More producers than `odradek.producers.max` have the oldest ones forgotten, but not the fenced one."""
    for one in (2000, 2001):  # a loaded table has room for one more
        put(partition, batch(b"v", producer=one, sequence=0))
    assert 7 in known(partition) and 1000 not in known(partition)
    zombie = batch(b"v", producer=7, sequence=1)
    put(partition, zombie)
    assert zombie.error == errors.INVALID_PRODUCER_EPOCH


def start_again(made: Live, clean: bool) -> Partition:
    again = made.partition(1)
    again.slot.publish(slots.SlotState(incarnation=again.incarnation, state=slots.RECOVERING))
    assert isinstance(again.owner, Log)
    points = {("t", 0): made.partition(2).state().leo} if clean else {}
    opening.open_all(again.owner, [("t", 0)], [opening.LogDir(clean, False, points, {}, {}, {})], lambda: None)
    return again


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_producers_max_keeps_a_fenced_producer_behind_a_start(tmp_path: Path, clean: bool, rolled: bool) -> None:
    """Its marker is in the log that is read, or in what a snapshot stands for."""
    with live(tmp_path, producers_max=SERVED) as made:
        partition = made.partition()
        fenced(partition)
        if rolled:
            note_flushed(partition)
            with partition.locked() as values:
                roll.roll(partition, values)
        check_fenced(start_again(made, clean))


def test_a_start_with_a_smaller_producers_max_keeps_a_fenced_producer(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        fenced(made.partition())
        made.config["producers.max"] = 4
        assert known(start_again(made, False)) == {7, 998 + SERVED}


@pytest.mark.parametrize("behind", [0, 1])
def test_producers_max_keeps_a_fenced_producer_behind_a_truncation(tmp_path: Path, behind: int) -> None:
    """Of it or of another are the batches that the truncation takes."""
    with live(tmp_path, producers_max=SERVED) as made:
        partition = made.partition()
        fenced(partition)
        end = partition.state().leo
        put(partition, batch(b"v", producer=(1008, 7)[behind], epoch=behind, sequence=1 - behind))
        with partition.locked() as values:
            truncate.truncate(partition, values, end)
        check_fenced(partition)


def test_a_transaction_begins_behind_a_start_and_a_truncation(tmp_path: Path) -> None:
    """Of a producer whose last marker lies somewhere below the end of the log, which is cut."""
    with live(tmp_path) as made:
        partition = made.partition()
        open_transaction(partition, 7)
        assert control_batch.write_marker(partition, 7, 0, 0, True, NOW) == errors.NONE
        put(partition, batch(b"v"), batch(b"v"))
        table = partition.producers.table(partition.state().pstate_gen)
        snapshots.write_table(partition.directory, partition.state().leo, table)  # as a clean stop does
        again = start_again(made, True)
        with again.locked() as values:
            truncate.truncate(again, values, 3)
        one = batch(b"w", producer=7, sequence=1)
        one.transactional, one.guard = True, NOT_ASKED
        put(again, one)
        assert again.unverified == [one]
        again.unverified.clear()
        assert put(again, one) == [3]


def test_forgotten_producer_may_continue(tmp_path: Path) -> None:
    """As Kafka lets one whose id has expired (KIP-360)."""
    with live(tmp_path, producers_max=100) as made:
        partition = made.partition()
        for one in range(150):
            put(partition, batch(b"v", producer=one, sequence=0))
        late = batch(b"v", producer=0, sequence=1)
        assert (put(partition, late), late.error) == ([150], 0)


def test_more_open_transactions_than_producers_max(tmp_path: Path) -> None:
    """None of them is forgotten; the table does not grow with each one either."""
    with live(tmp_path, producers_max=100) as made:
        partition = made.partition()
        generations = set()
        for one in range(400):
            open_transaction(partition, one)
            generations.add(partition.state().pstate_gen)
        assert known(made.partition(1)) == set(range(400))
        assert len(generations) < 10


def test_start_keeps_only_the_newest_producers(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        partition = made.partition()
        for one in range(150):
            put(partition, batch(b"v", producer=one, sequence=0))
        made.config["producers.max"] = 100
        again = made.partition(1)
        again.slot.publish(slots.SlotState(incarnation=again.incarnation, state=slots.RECOVERING))
        assert isinstance(again.owner, Log)
        opening.open_all(again.owner, [("t", 0)], [opening.LogDir(False, False, {}, {}, {}, {})], lambda: None)
        assert known(again) == set(range(100, 150))


def test_snapshot_has_the_tables_entries(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        partition = made.partition()
        open_transaction(partition, 7)
        for sequence in range(7):
            put(partition, batch(b"v", b"w", producer=8, sequence=2 * sequence))
        table = partition.producers.table(partition.state().pstate_gen)
        assert table is not None
        found = snapshots.decode(snapshots.encode_table(table))
        assert found.keys() == {7, 8}
        assert (found[7].txn_first_offset, found[8].txn_first_offset) == (0, -1)
        last = found[8].last
        assert last is not None and (last.last_seq, last.first_offset, last.last_offset) == (13, 13, 14)
        assert snapshots.decode(snapshots.encode_table(None)) == {}
