"""The janitor's checkpoints: their lines, and the times of their writes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from odradek.broker.janitor import janitor
from odradek.broker.process import flush as flushing
from odradek.broker.process.checkpoint_lock import CheckpointLocks, DeletedPartitionLines
from odradek.broker.process.checkpoint_writer import PICK, CheckpointWriter
from odradek.ipc import slots
from odradek.storage.files import checkpoints

from .benches import Maker, follow


def keeper(log: Any) -> CheckpointWriter:
    return CheckpointWriter([str(log.data)], CheckpointLocks(log.data.parent))


def test_checkpoints(bench: Maker) -> None:
    log = bench(count=2)
    log.append(0)
    log.append(1)
    flushing.sync(log.partition(1))
    written = keeper(log)
    for name in PICK:
        written.write(log.partitions, name)
    assert checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT) == {("t", 0): 0, ("t", 1): 1}
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 0): 1, ("t", 1): 1}
    assert checkpoints.read_offsets(log.data, checkpoints.LOG_START) == {}


def test_an_offline_partition_keeps_its_lines(bench: Maker) -> None:
    log = bench(count=2)
    checkpoints.write_offsets(log.data, checkpoints.RECOVERY_POINT, {("t", 0): 7, ("gone", 0): 9})
    state = log.partition(0).state()
    log.partition(0).slot.publish(state._replace(state=slots.OFFLINE))
    keeper(log).write(log.partitions, checkpoints.RECOVERY_POINT)
    assert checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT) == {("t", 0): 7, ("t", 1): 0}


@pytest.mark.parametrize("state", [slots.DELETING, slots.FREE])
def test_lines_of_a_deleted_partition_are_left_out(bench: Maker, state: int) -> None:
    """The janitor has not seen the deletion yet; a recreated topic must not find the lines."""
    log = bench(count=2)
    log.append(0)
    written = keeper(log)
    written.write(log.partitions, checkpoints.HIGH_WATERMARK)
    log.partition(0).slot.update(state=state)
    written.write(log.partitions, checkpoints.HIGH_WATERMARK)
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 1): 0}


def test_former_lines_are_forgotten_and_stay_so(bench: Maker) -> None:
    """Also lines of a partition that is not open yet: they are read from the file again."""
    log = bench(count=2)
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, {("t", 0): 7, ("t", 1): 9})
    log.partition(0).slot.update(state=slots.RECOVERING)
    written = keeper(log)
    written.write(log.partitions, checkpoints.LOG_START)
    DeletedPartitionLines([str(log.data)], CheckpointLocks(log.data.parent)).forget("t", 0, 0)
    for name in checkpoints.OFFSET_CHECKPOINTS:
        assert ("t", 0) not in checkpoints.read_offsets(log.data, name)
    written.write(log.partitions, checkpoints.LOG_START)
    assert checkpoints.read_offsets(log.data, checkpoints.LOG_START) == {}


def test_one_writes_at_a_time(bench: Maker) -> None:
    log = bench()
    name = checkpoints.RECOVERY_POINT
    done: list[dict[int, OSError]] = []
    with CheckpointLocks(log.data.parent).of(0):
        other = threading.Thread(target=lambda: done.append(keeper(log).write(log.partitions, name)))
        other.start()
        other.join(0.1)
        assert not done and not (log.data / name).exists()
    other.join(60)
    assert done == [{}] and (log.data / name).exists()


def test_an_unchanged_checkpoint_is_not_written_again(bench: Maker) -> None:
    log = bench()
    written = keeper(log)
    written.write(log.partitions, checkpoints.RECOVERY_POINT)
    path = log.data / checkpoints.RECOVERY_POINT
    inode = path.stat().st_ino
    written.write(log.partitions, checkpoints.RECOVERY_POINT)
    assert path.stat().st_ino == inode


def test_a_followers_offsets_are_checkpointed_and_it_is_flushed(bench: Maker) -> None:
    log = bench(flush_ms=0)
    for _ in range(3):
        log.append()
    follow(log)
    log.partition().slot.update(hw=2)
    janitor._flush_due(log.partition())
    for name in PICK:
        keeper(log).write(log.partitions, name)
    assert checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT) == {("t", 0): 3}
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 0): 2}
