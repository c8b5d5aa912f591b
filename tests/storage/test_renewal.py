"""Who waits for a partition's lock says so, and who holds it for long says that it goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from odradek.ipc import renewal, slots
from odradek.ipc.producers import ProducerTable
from odradek.storage import damage, opening, read, roll, snapshots, swap, truncate
from odradek.storage.durable import FILES
from odradek.storage.partition import Busy, Partition
from odradek.storage.scan import READ_SIZE, Scan

from .live import NOW, Live, batch, live, note_flushed, put

MIB = 1 << 20


def noted(partition: Partition) -> bool:
    return bool(partition.slot.words[partition.slot.at + slots.CONTENDED])


class Waiter:
    """Notes its wait before each call of what reads or copies; `seen`: whether the note was there at the next call."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.seen: list[bool] = []

    def around(self, call: Callable[..., Any], size: int | None = None) -> Callable[..., Any]:
        """Of calls whose second argument is `size`."""

        def wrapped(*arguments: Any) -> Any:
            if size is None or arguments[1] == size:
                self.seen.append(noted(self._partition))
                self._partition.note_wait()
            return call(*arguments)

        return wrapped


def filled(world: Live, mib: int, producer: int = -1) -> Partition:
    partition = world.partition()
    for n in range(mib * 8):
        put(partition, batch(b"x" * (MIB // 8), producer=producer, sequence=n if producer >= 0 else -1))
    return partition


def test_who_does_not_get_the_lock_notes_that(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        first, second = world.partition(1), world.partition(2)
        with first.locked():
            with pytest.raises(Busy), second.locked():
                pass
            assert noted(first)
            first.slot.renew()
            assert not noted(first)
            with pytest.raises(Busy), second.locked():
                pass
        with second.locked():
            assert not noted(second)


def test_a_reader_that_waits_for_a_swap_notes_that(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        first, second = world.partition(1), world.partition(2)
        with first.locked():
            first.slot.dirty = swap.SWAPPING
            with pytest.raises(FileNotFoundError):
                second.confirm()
            assert noted(first)
            first.slot.dirty = 0


def test_a_recovery_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it count as a wait that another process leaves it alone."""
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
        assert noted(partition), "whoever reads without the lock leaves the note"


def _file(partition: Partition) -> int:
    return partition.active(partition.state().active_base, partition.state().generation).log.fd


def test_a_truncation_of_the_active_segment_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_truncation_of_a_sealed_segment_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is copied and synced, some at a time."""
    synced: list[int] = []
    fsync = type(FILES).fsync
    with live(tmp_path, segment_bytes=4 * MIB) as world:
        partition = filled(world, 5)
        partition.slot.update(state=slots.FOLLOWER)
        note_flushed(partition)
        waiter = Waiter(partition)
        monkeypatch.setattr(truncate, "_SYNC_SIZE", MIB)
        monkeypatch.setattr(truncate, "pread_exact", waiter.around(truncate.pread_exact))
        monkeypatch.setattr(type(FILES), "fsync", lambda files, fd: (synced.append(fd), fsync(files, fd)))
        with partition.locked() as values:
            truncate.truncate(partition, values, 28)
        assert partition.state().leo == 28
        assert waiter.seen == [False] * 4 and len(synced) >= 4


def test_a_repair_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = filled(world, 3, producer=3)
        partition.slot.update(pstate_leo=0)
        partition.slot.dirty = 1
        waiter = Waiter(partition)
        monkeypatch.setattr(read, "raw", waiter.around(read.raw))
        with world.partition(2).locked():
            pass
        assert waiter.seen == [False] * len(waiter.seen) and len(waiter.seen) >= 3


def test_a_start_with_many_producers_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from their snapshot, and entered into a table."""
    monkeypatch.setattr(renewal, "_MANY", 2)
    with live(tmp_path) as world:
        partition = world.partition()
        for producer in range(10):
            put(partition, batch(b"x", producer=producer, sequence=0))
        with partition.locked() as values:
            roll.roll(partition, values, NOW)
        partition.slot.update(state=slots.RECOVERING)
        decoding, loading = Waiter(partition), Waiter(partition)
        monkeypatch.setattr(snapshots, "_unpack", decoding.around(snapshots._unpack))
        monkeypatch.setattr(ProducerTable, "load", loading.around(ProducerTable.load))
        opening.open_all(world.log(3), [("t", 0)], [opening.LogDir.read(str(tmp_path), True)], lambda: None)
        assert decoding.seen == loading.seen == [False, True] * 5


def test_what_is_put_aside_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "p") as world:
        partition = world.partition()
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(bytes(4 * READ_SIZE))
        waiter = Waiter(partition)
        monkeypatch.setattr(damage, "pread_exact", waiter.around(damage.pread_exact))
        with partition.locked(), renewal.of(partition.slot):
            damage._copy_from(source, 0, target, FILES)
        assert waiter.seen == [False] * 5
