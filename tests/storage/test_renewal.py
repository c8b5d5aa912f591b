"""A process that waits for a partition's lock marks it as contended; a long holder renews, which removes the mark."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor import log_retention
from odradek.ipc import producers, region, renewal, slots
from odradek.ipc.producers import ProducerTable
from odradek.storage.compaction import compaction
from odradek.storage.files.durable import FILES, pread_exact, read_file, replace
from odradek.storage.log import append, opening, read, roll, trim, truncate
from odradek.storage.log.partition import SWAPPING, LockNotAvailable, Partition
from odradek.storage.producers import snapshots
from odradek.storage.recovery import damage
from odradek.storage.segment.scan import READ_SIZE, Scan

from .live import NOW, Live, batch, live, note_flushed, put

MIB = 1 << 20


def noted(partition: Partition) -> bool:
    return bool(partition.slot.words[partition.slot.at + slots.CONTENDED])


class Waiter:
    """Marks the lock before each call that reads or copies; `seen`: whether the mark was there at the next call."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.seen: list[bool] = []

    def around(self, call: Callable[..., Any], size: int | None = None) -> Callable[..., Any]:
        """Wrap calls whose second argument is `size`."""

        def wrapped(*arguments: Any) -> Any:
            if size is None or arguments[1] == size:
                self.seen.append(noted(self._partition))
                self._partition.record_wait()
            return call(*arguments)

        return wrapped


def filled(world: Live, mib: int, producer: int = -1) -> Partition:
    partition = world.partition()
    for n in range(mib * 8):
        put(partition, batch(b"x" * (MIB // 8), producer=producer, sequence=n if producer >= 0 else -1))
    return partition


def test_waiter_marks_the_lock_as_contended(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        first, second = world.partition(1), world.partition(2)
        with first.locked():
            with pytest.raises(LockNotAvailable), second.locked():
                pass
            assert noted(first)
            first.slot.renew()
            assert not noted(first)
            with pytest.raises(LockNotAvailable), second.locked():
                pass
        with second.locked():
            assert not noted(second)


def test_reader_waiting_for_a_swap_marks_the_lock(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        first, second = world.partition(1), world.partition(2)
        with first.locked():
            first.slot.dirty = SWAPPING
            with pytest.raises(FileNotFoundError):
                second.confirm()
            assert noted(first)
            first.slot.dirty = 0


def test_recovery_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that skips the partition does not count as a waiter."""
    with live(tmp_path) as world:
        partition = filled(world, 4, producer=3)
        partition.slot.update(state=slots.RECOVERING)
        with partition.locked():
            others = world.log(2)
            opening.open_all(others, [("t", 0)], [opening.LogDir.read(str(tmp_path), clean=False)], lambda: None)
            assert not noted(partition)
        waiter = Waiter(partition)
        monkeypatch.setattr(Scan, "_load", waiter.around(Scan._load))
        opened = opening.open_all(world.log(3), [("t", 0)], [opening.LogDir.read(str(tmp_path), False)], lambda: None)
        assert opened == 1 and partition.state().state == slots.LEADER
        assert len(waiter.seen) >= 4 and not any(waiter.seen)
        list(Scan(_file(partition), check=False))
        assert noted(partition), "a reader without the lock leaves the mark"


def _file(partition: Partition) -> int:
    return partition.active(partition.state().active_base, partition.state().generation).log.fd


def test_truncation_of_the_active_segment_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches are read from the cut on."""
    with live(tmp_path, index_interval_bytes=64 * MIB) as world:
        partition = filled(world, 4)
        partition.slot.update(state=slots.FOLLOWER)
        waiter = Waiter(partition)
        monkeypatch.setattr(os, "pread", waiter.around(os.pread, read._SCAN))
        with partition.locked() as values:
            truncate.truncate(partition, values, 2)
        assert partition.state().leo == 2
        assert len(waiter.seen) > 16 and sum(waiter.seen) <= 1, "but for what was read last"


def test_truncation_of_a_sealed_segment_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is copied and synced, some at a time."""
    synced: list[int] = []
    fsync = type(FILES).fsync
    with live(tmp_path, segment_bytes=4 * MIB) as world:
        partition = filled(world, 5)
        partition.slot.update(state=slots.FOLLOWER)
        note_flushed(partition)
        waiter = Waiter(partition)
        monkeypatch.setattr(truncate, "_SYNC_SIZE", MIB)
        monkeypatch.setattr(truncate, "pread_exact", waiter.around(pread_exact))
        monkeypatch.setattr(type(FILES), "fsync", lambda files, fd: (synced.append(fd), fsync(files, fd)))
        with partition.locked() as values:
            truncate.truncate(partition, values, 28)
        assert partition.state().leo == 28
        assert waiter.seen == [False] * 4 and len(synced) >= 4


def test_repair_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = filled(world, 3, producer=3)
        partition.slot.update(pstate_leo=0)
        partition.slot.dirty = 1
        waiter = Waiter(partition)
        monkeypatch.setattr(read, "raw", waiter.around(read.raw))
        with world.partition(2).locked():
            pass
        assert waiter.seen == [False] * len(waiter.seen) and len(waiter.seen) >= 3


def test_start_with_many_producers_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from their snapshot, and entered into a table."""
    monkeypatch.setattr(renewal, "_MANY", 2)
    with live(tmp_path) as world:
        partition = world.partition()
        for producer in range(10):
            put(partition, batch(b"x", producer=producer, sequence=0))
        with partition.locked() as values:
            roll.roll(partition, values)
        partition.slot.update(state=slots.RECOVERING)
        decoding, loading = Waiter(partition), Waiter(partition)
        monkeypatch.setattr(snapshots, "_unpack", decoding.around(snapshots._unpack))
        monkeypatch.setattr(ProducerTable, "load", loading.around(ProducerTable.load))
        opening.open_all(world.log(3), [("t", 0)], [opening.LogDir.read(str(tmp_path), True)], lambda: None)
        assert decoding.seen == loading.seen == [False, True] * 5


def test_copy_of_damaged_data_renews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "p") as world:
        partition = world.partition()
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(bytes(4 * READ_SIZE))
        waiter = Waiter(partition)
        monkeypatch.setattr(damage, "pread_exact", waiter.around(pread_exact))
        with partition.locked(), renewal.of(partition.slot):
            damage._copy_from(source, 0, target, FILES)
        assert waiter.seen == [False] * 5


class Renewals:
    """How often the holder of each slot's lock renewed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: dict[int, int] = {}
        renew = slots.Slot.renew

        def counted(slot: slots.Slot) -> None:
            self.count[slot.number] = self.count.get(slot.number, 0) + 1
            renew(slot)

        monkeypatch.setattr(slots.Slot, "renew", counted)

    def of(self, partition: Partition, what: Callable[[], Any]) -> int:
        """The number of renewals during `what`, with a table of ten producers."""
        before = self.count.get(partition.slot.number, 0)
        what()
        assert not getattr(renewal._thread, "slot", None), "nothing is held any more"
        return self.count.get(partition.slot.number, 0) - before


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    """Renews for each producer; in production, for each thousand."""
    monkeypatch.setattr(renewal, "_MANY", 1)
    return Renewals(monkeypatch)


def ten_producers(world: Live) -> Partition:
    partition = world.partition()
    for producer in range(10):
        put(partition, batch(b"x", producer=producer, sequence=0))
    return partition


def _appended(partition: Partition, *batches: Any) -> Callable[[], None]:
    """As a worker appends them: without `Partition.locked`."""

    def act() -> None:
        values = partition.acquire()
        append.append(partition, values, batches, NOW)
        partition.release()

    return act


def test_roll_renews_with_each_producer_of_the_snapshot(tmp_path: Path, renewals: Renewals) -> None:
    with live(tmp_path) as world:
        partition = ten_producers(world)
        partition.config = dataclasses.replace(partition.config, segment_bytes=1)
        assert renewals.of(partition, _appended(partition, batch(b"y"))) >= 10
        assert partition.state().active_base == 10


@pytest.mark.parametrize("most", [100, 10])
def test_growth_of_the_table_renews_with_each_producer(tmp_path: Path, renewals: Renewals, most: int) -> None:
    """Also where the older half of them is forgotten."""
    with live(tmp_path, odradek_producers_max=most) as world:
        partition = ten_producers(world)
        generation = partition.state().pstate_gen
        assert renewals.of(partition, _appended(partition, batch(b"y", producer=10, sequence=0))) >= 10
        assert partition.state().pstate_gen == generation + 1


def test_append_without_roll_does_not_renew(tmp_path: Path, renewals: Renewals) -> None:
    with live(tmp_path) as world:
        partition = ten_producers(world)
        assert renewals.of(partition, _appended(partition, batch(b"y", producer=1, sequence=1))) == 0


def test_expiry_of_producers_renews(tmp_path: Path, renewals: Renewals) -> None:
    with live(tmp_path) as world:
        partition = ten_producers(world)
        assert renewals.of(partition, lambda: log_retention.expire_producers(partition, NOW * 2, 1)) >= 10


def test_reading_the_producer_table_renews(tmp_path: Path, renewals: Renewals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy for DescribeProducers, and the oldest open transaction."""
    monkeypatch.setattr(producers, "_TOGETHER", 4)
    with live(tmp_path) as world:
        partition = ten_producers(world)

        def look() -> None:
            with partition.locked() as values:
                table = partition.producers.table(values[slots.F_PSTATE_GEN])
                assert table is not None
                copy = table.copied()
                assert list(copy.entries()) == list(table.entries()) and len(copy.places()) == 10
                assert table.first_unstable() == -1

        assert renewals.of(partition, look) >= 12


def test_memory_for_a_large_table_is_taken_in_pieces(
    tmp_path: Path, renewals: Renewals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region, "_PIECE", 1 << 12)
    with live(tmp_path) as world:
        partition = world.partition()
        with renewal.of(partition.slot):
            table = ProducerTable.create(f"{world.prefix}large", 1, 1000)
        assert renewals.count[partition.slot.number] >= 60
        assert table.words[-1] == 0
        table.close()


def test_deletion_of_many_segments_renews(tmp_path: Path, renewals: Renewals) -> None:
    with live(tmp_path, segment_bytes=1) as world:
        partition = ten_producers(world)

        def delete() -> None:
            with partition.locked() as values:
                assert trim.advance(partition, values, 9) == 9

        assert renewals.of(partition, delete) >= 9


def test_replacing_a_file_renews_with_each_call(tmp_path: Path, renewals: Renewals) -> None:
    """Written and synced, renamed, and the directory synced."""
    with live(tmp_path) as world:
        partition = world.partition()

        def act() -> None:
            with partition.locked():
                replace(tmp_path / "file", bytes(10 * MIB))
                assert len(read_file(tmp_path / "file")) == 10 * MIB

        assert renewals.of(partition, act) >= 3 + 3 + 3


def test_compaction_renews_with_each_producer(tmp_path: Path, renewals: Renewals) -> None:
    with live(tmp_path, segment_bytes=1, cleanup_policy="compact") as world:
        partition = ten_producers(world)
        work = compaction.Compaction(
            partition, compaction.find_range(partition, 0, NOW), compaction.DedupeBuffer(1 << 20), NOW
        )
        assert renewals.of(partition, lambda: list(work.steps())) >= 10
        assert work.swaps
