"""Byte locks: exclusive between processes, freed by death, not freed by closing other descriptors."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from odradek.ipc.locks import PartitionLocks, RoleLocks


def _child_holds(path: Path, byte: int) -> int:
    """Fork a process that holds `byte` until it is killed; return its pid."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        locks = PartitionLocks(path)  # the lock is held as long as the object lives
        locks.try_lock(byte)
        os.write(write, b"!")
        signal.pause()
    os.close(write)
    assert os.read(read, 1)
    os.close(read)
    return pid


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    one, other = PartitionLocks(tmp_path / "l"), PartitionLocks(tmp_path / "l")
    assert one.try_lock(3)
    assert not other.try_lock(3)
    assert other.try_lock(4)
    one.unlock(3)
    assert other.try_lock(3)


def test_death_of_the_holder_frees_the_lock(tmp_path: Path) -> None:
    locks = PartitionLocks(tmp_path / "l")
    pid = _child_holds(tmp_path / "l", 5)
    assert not locks.try_lock(5)
    assert locks.held(5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not locks.held(5)
    assert locks.try_lock(5)


def test_closing_another_descriptor_of_the_file_frees_nothing(tmp_path: Path) -> None:
    one, other = PartitionLocks(tmp_path / "l"), PartitionLocks(tmp_path / "l")
    assert one.try_lock(1)
    os.close(os.open(tmp_path / "l", os.O_RDWR))
    assert not other.try_lock(1)


def test_role_has_one_holder_at_a_time(tmp_path: Path) -> None:
    one, other = RoleLocks(tmp_path / "r"), RoleLocks(tmp_path / "r")
    assert not one.anyone(range(8))
    assert one.hold(2)
    assert one.hold(2)
    assert not other.hold(2)
    assert one.alive(2)
    assert other.alive(2)
    assert other.anyone(range(8))
    one.close()
    assert not other.alive(2)


def test_released_role_is_free_for_another_holder(tmp_path: Path) -> None:
    one, other = RoleLocks(tmp_path / "r"), RoleLocks(tmp_path / "r")
    assert one.hold(1) and one.hold(2) and not other.hold(1)
    assert one.release(1) and not one.release(1)
    assert not one.alive(1) and other.hold(1) and not other.hold(2)
