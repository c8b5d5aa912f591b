"""A disk that accepts only a part of a write: the rest follows, or the append is refused without a torn row."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.files import names
from odradek.storage.log import control_batch, roll, transactions
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producer_state import TXN_ENTRY, read_txn_index
from odradek.storage.segment.index import TIME_ENTRY

from ..live import NOW, batch, live, put


class Short:
    """A write call that accepts few bytes at once, and none after `room` of them."""

    def __init__(self, real: Any, room: int = 1 << 30) -> None:
        self._real, self.room = real, room

    def __call__(self, fd: int, data: bytes | memoryview, *position: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written: int = self._real(fd, bytes(data)[: min(self.room, 10)], *position)
        self.room -= written
        return written


def short(patch: pytest.MonkeyPatch, room: int = 1 << 30) -> None:
    one = Short(os.pwrite, room)
    patch.setattr(os, "pwrite", one)
    patch.setattr(os, "write", Short(os.write, room))


def begin(partition: Partition, producer: int, sequence: int = 0) -> int:
    one = batch(b"v", producer=producer, sequence=sequence)
    one.transactional = True
    return put(partition, one)[0]


def abort(partition: Partition, producer: int) -> int:
    return control_batch.write_marker(partition, producer, 0, 0, False, NOW)


def aborted(partition: Partition) -> list[tuple[int, int]]:
    values = partition.slot.read()
    return transactions.aborted_between(partition, values, 0, values[slots.F_LEO])


def test_transaction_index_row_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        begin(partition, 7)
        with monkeypatch.context() as disk:
            short(disk)
            assert abort(partition, 7) == errors.NONE
        assert aborted(world.partition(1)) == [(7, 0)]


def test_marker_without_room_for_its_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        for producer in (7, 8):
            begin(partition, producer)
        with monkeypatch.context() as disk:
            short(disk, TXN_ENTRY.size - 4)
            assert abort(partition, 7) == errors.KAFKA_STORAGE_ERROR
        assert partition.state().leo == 2
        assert abort(partition, 8) == abort(partition, 7) == errors.NONE
        assert aborted(world.partition(1)) == [(8, 1), (7, 0)]


def test_row_overwrites_a_torn_one(tmp_path: Path) -> None:
    """A broker of another version or a power failure may leave one."""
    with live(tmp_path) as world:
        partition = world.partition()
        begin(partition, 7)
        path = names.segment_path(tmp_path / "t-0", 0, names.TXN_INDEX)
        path.write_bytes(bytes(5))
        assert abort(partition, 7) == errors.NONE
        assert [row.producer_id for row in read_txn_index(path)] == [7]
        assert aborted(world.partition(1)) == [(7, 0)]


def test_last_time_index_entry_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        put(partition, batch(b"v"))
        with monkeypatch.context() as disk, partition.locked() as values:
            short(disk)
            roll.roll(partition, values)
        data = names.segment_path(tmp_path / "t-0", 0, names.TIME_INDEX).read_bytes()
        assert TIME_ENTRY.unpack(data) == (NOW, 0)


def test_write_of_zero_bytes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        begin(partition, 7)
        with monkeypatch.context() as disk:
            disk.setattr(os, "pwrite", lambda *_: 0)
            disk.setattr(os, "write", lambda *_: 0)
            assert abort(partition, 7) == errors.KAFKA_STORAGE_ERROR
        assert partition.state().leo == 1
        assert partition.state().state == slots.OFFLINE
