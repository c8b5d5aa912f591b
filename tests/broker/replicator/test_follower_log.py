"""A truncation below synced records lowers the checkpoint before new records are appended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor.cleaner_offsets import CleanerOffsets
from odradek.broker.process import flush
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.checkpoint_writer import CheckpointWriter
from odradek.broker.replicator import follower_log
from odradek.ipc import slots
from odradek.ipc.locks import PartitionLocks
from odradek.storage.compaction.compaction import CleaningAborted
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.log import trim, truncate
from odradek.storage.log.partition import LockNotAvailable

from ..partitions import Bench

EPOCH = 3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Bench]:
    """Two followers with ten synced records each, and their checkpoint."""
    made = Bench(tmp_path, count=2, segment_bytes=500)
    for index in (0, 1):
        for _ in range(10):
            made.append(index)
        flush.sync(made.partition(index))
        made.partition(index).slot.update(state=slots.FOLLOWER, leader_epoch=EPOCH)
    keeper(made).write(made.partitions, checkpoints.RECOVERY_POINT)
    assert points(made) == [10, 10]
    yield made
    made.close()


def keeper(log: Bench) -> CheckpointWriter:
    return CheckpointWriter([str(log.data)], CheckpointLocks(log.run_dir))


def points(log: Bench) -> list[int]:
    found = checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT)
    return [found["t", index] for index in (0, 1)]


class Died(BaseException):
    """The death of the process."""


@pytest.fixture(params=["before the cut", "behind it"])
def dies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, log: Bench) -> Callable[[str], None]:
    """The replicator dies just before or after a call of storage.log.truncate; the janitor writes in between."""

    def within(name: str) -> None:
        call = getattr(truncate, name)

        def dying(*args: object) -> None:
            if request.param == "behind it":
                call(*args)
            else:
                for kind in (checkpoints.RECOVERY_POINT, checkpoints.LOG_START):
                    keeper(log).write(log.partitions, kind)
            raise Died

        monkeypatch.setattr(truncate, name, dying)

    return within


@pytest.mark.parametrize("now", [{"leader_epoch": EPOCH + 1}, {"state": slots.LEADER}])
def test_truncation_decided_in_a_former_epoch_is_not_done(log: Bench, now: dict[str, int]) -> None:
    """The leader of the new epoch relies on the reported log end: a truncation would remove acknowledged records."""
    partition = log.partition()
    partition.slot.update(**now)
    with pytest.raises(follower_log.FencedLeaderEpoch):
        follower_log.change(partition, EPOCH, follower_log.cut_to(partition, 4))
    assert partition.state().leo == 10


def test_a_death_leaves_no_checkpoint_above_a_cut(log: Bench, dies: Callable[[str], None]) -> None:
    dies("truncate")
    with pytest.raises(Died):
        follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    assert points(log)[0] <= 4 and points(log)[1] == 10


@pytest.mark.parametrize("offset", [1, 4])
def test_a_death_leaves_no_log_start_behind_the_end(log: Bench, dies: Callable[[str], None], offset: int) -> None:
    """After retention, the log of an unclean leader ends below the log start: recovery would drop the whole log."""
    with log.partition().locked() as values:
        trim.advance(log.partition(), values, 6)
    keeper(log).write(log.partitions, checkpoints.LOG_START)
    dies("truncate")
    with pytest.raises(Died):
        follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), offset))
    assert checkpoints.read_offsets(log.data, checkpoints.LOG_START)["t", 0] <= offset
    assert log.partition().state().log_start <= offset


def test_a_death_leaves_no_checkpoint_above_a_new_beginning(log: Bench, dies: Callable[[str], None]) -> None:
    dies("restart")
    with pytest.raises(Died):
        follower_log.change(log.partition(), EPOCH, follower_log.restart(log.partition(), 2))
    assert points(log)[0] <= 2 and points(log)[1] == 10


@pytest.mark.parametrize("offset", range(10))
def test_the_recovery_point_is_the_end_of_what_stays(log: Bench, offset: int) -> None:
    """The rest stays synced; the checkpoint has a lower offset until the janitor writes it."""
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), offset))
    state = log.partition().state()
    assert (state.leo, state.flushed, state.unflushed_since) == (offset, offset, 0)
    assert points(log)[0] <= offset and points(log)[1] == 10
    keeper(log).write(log.partitions, checkpoints.RECOVERY_POINT)
    assert points(log) == [offset, 10]


@pytest.mark.parametrize("text", ["rubbish\n", "0\n0\n", None])
def test_epochs_whose_file_is_broken_are_built_again(log: Bench, text: str | None) -> None:
    """Without epochs, the log would be truncated to its high watermark, which may be below committed records."""
    partition = log.partition()
    file = log.data / "t-0" / "leader-epoch-checkpoint"
    spoil = file.unlink if text is None else lambda: file.write_text(text)
    spoil()
    assert follower_log.position(partition).last_epoch == 0
    assert file.read_text() == "0\n1\n0 0\n"
    spoil()
    assert follower_log.change(partition, EPOCH, follower_log.cut_diverging(partition, 0, 8))[1:3] == (8, 0)


def test_epochs_are_asked_for_later_while_another_has_the_lock(log: Bench) -> None:
    (log.data / "t-0" / "leader-epoch-checkpoint").write_text("rubbish\n")
    other = PartitionLocks(log.run_dir / "partition.lock")
    assert other.try_lock(log.partition().slot.number)
    with pytest.raises(CheckpointError):
        follower_log.position(log.partition())
    other.close()


def test_log_that_is_reset(log: Bench) -> None:
    follower_log.change(log.partition(), EPOCH, follower_log.restart(log.partition(), 2))
    assert log.partition().state().flushed == 2
    assert points(log)[0] <= 2 and points(log)[1] == 10


def test_truncation_of_unsynced_records_keeps_the_checkpoint(log: Bench) -> None:
    path = log.data / checkpoints.RECOVERY_POINT
    log.partition().slot.update(state=slots.LEADER)
    log.append()
    log.partition().slot.update(state=slots.FOLLOWER)
    before = path.stat().st_ino
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 10))
    assert path.stat().st_ino == before
    assert points(log) == [10, 10]


def test_janitor_restores_no_old_line(log: Bench) -> None:
    janitor = keeper(log)
    janitor.write(log.partitions, checkpoints.RECOVERY_POINT)
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    janitor.write(log.partitions, checkpoints.RECOVERY_POINT)
    assert points(log) == [4, 10]


def test_without_a_checkpoint_there_is_nothing_to_lower(log: Bench) -> None:
    path = log.data / checkpoints.RECOVERY_POINT
    path.write_text("no checkpoint")
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    assert path.read_text() == "no checkpoint"


def test_truncation_does_not_wait_for_the_checkpoint_lock(log: Bench) -> None:
    """Nothing is truncated then, and the next attempt succeeds."""
    with CheckpointLocks(log.run_dir).of(0), pytest.raises(LockNotAvailable):
        follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    assert log.partition().state().leo == 10
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    assert log.partition().state().leo == 4 and points(log)[0] <= 4


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("offset", [0, 4, 5, 9])
def test_a_death_leaves_no_log_clean_beyond_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, policy: str
) -> None:
    """No cleaning pass has seen the records that replace the truncated ones. Segments begin at every second offset."""
    log = Bench(tmp_path, count=2, segment_bytes=400, cleanup_policy=policy)
    try:
        for _ in range(10):
            log.append(key=b"k")
        log.partition().slot.update(state=slots.FOLLOWER, leader_epoch=EPOCH)
        clean = {("t", 0): 4, ("t", 1): 8}
        checkpoints.write_offsets(log.data, checkpoints.CLEANER, clean)

        def dying(*_: object) -> None:
            raise Died

        monkeypatch.setattr(truncate, "truncate", dying)
        with pytest.raises(Died):
            follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), offset))
        found = checkpoints.read_offsets(log.data, checkpoints.CLEANER)
        assert found == ({**clean, ("t", 0): 0} if offset < 4 else clean)
    finally:
        log.close()


def compacted(folder: Path) -> Bench:
    """A follower with ten records and segments at every second offset; clean up to 8."""
    log = Bench(folder, segment_bytes=400, cleanup_policy="compact")
    for _ in range(10):
        log.append(key=b"k")
    log.partition().slot.update(state=slots.FOLLOWER, leader_epoch=EPOCH)
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("t", 0): 8})
    return log


def test_a_round_of_the_cleaner_that_ends_just_now_is_not_written_over_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation comes after the cleaner's check: its checkpoint would mark the new records as clean."""
    log = compacted(tmp_path)
    try:
        cleaned, partition = CleanerOffsets([str(log.data)], CheckpointLocks(log.run_dir)), log.partition()
        before, cut = partition.state().truncations, truncate.truncate

        def meanwhile(*arguments: Any) -> None:
            with pytest.raises(CleaningAborted):
                cleaned.put(partition, 8, before, log.partitions)
            seen.append(partition.state().truncations)
            cut(*arguments)

        seen: list[int] = []
        monkeypatch.setattr(truncate, "truncate", meanwhile)
        follower_log.change(partition, EPOCH, follower_log.cut_to(partition, 4))
        assert before < seen[0] < partition.state().truncations, "a former sync must not count"
        assert checkpoints.read_offsets(log.data, checkpoints.CLEANER) == {("t", 0): 0}
        assert cleaned.get(partition) == 0
    finally:
        log.close()


def test_cuts_in_the_active_segment_do_not_read_the_cleaners_checkpoint_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = compacted(tmp_path)
    read, reads = checkpoints.read_offsets, []
    try:

        def reading(log_dir: Any, name: str) -> checkpoints.Offsets:
            reads.append(name)
            return read(log_dir, name)

        monkeypatch.setattr(checkpoints, "read_offsets", reading)
        for _ in range(5):
            follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 9))
            assert log.partition().state().leo == 9
            log.partition().slot.update(state=slots.LEADER)
            log.append(key=b"k")
            log.partition().slot.update(state=slots.FOLLOWER)
        assert reads.count(checkpoints.CLEANER) == 1
        assert read(log.data, checkpoints.CLEANER) == {("t", 0): 8}
        checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("t", 0): 10})
        follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 9))
        assert read(log.data, checkpoints.CLEANER) == {("t", 0): 0}, "also in the active segment"
    finally:
        log.close()


def test_cuts_of_logs_that_no_checkpoint_speaks_of_do_not_read_it_again(
    log: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into sealed segments, and below synced records. The file is read once, and again if it changes."""
    read, reads = checkpoints.read_offsets, list[str]()

    def reading(log_dir: Any, name: str) -> checkpoints.Offsets:
        reads.append(name)
        return read(log_dir, name)

    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, {("other", 0): 7})
    monkeypatch.setattr(checkpoints, "read_offsets", reading)
    for offset in (8, 6, 4):
        follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), offset))
    assert sorted(reads) == sorted([checkpoints.CLEANER, checkpoints.RECOVERY_POINT, checkpoints.LOG_START])
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("other", 0): 7, ("t", 0): 4})
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 2))
    assert read(log.data, checkpoints.CLEANER) == {("other", 0): 7, ("t", 0): 0}


def test_lowering_the_checkpoints_renews_with_each_sync(log: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync may take a slow disk seconds: the lock holder must not look stuck."""
    synced: list[bool] = []
    fsync, slot = os.fsync, log.partition().slot

    def slow(fd: int) -> None:
        synced.append(bool(slot.words[slot.at + slots.CONTENDED]))
        slot.mark_contended(1)
        fsync(fd)

    for name in (checkpoints.CLEANER, checkpoints.LOG_START):
        checkpoints.write_offsets(log.data, name, {("t", 0): 8})
    slot.update(log_start=8)
    monkeypatch.setattr(os, "fsync", slow)
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 2))
    assert len(synced) >= 6 and not any(synced)


@pytest.mark.parametrize("janitor_writes", [True, False])
def test_a_death_between_the_checkpoint_and_the_slot(
    log: Bench, monkeypatch: pytest.MonkeyPatch, janitor_writes: bool
) -> None:
    """The janitor may or may not write the published offsets again; the next truncation lowers them again."""

    def dying(*_: object) -> None:
        raise Died

    places: list[tuple[object, str]] = [(checkpoints, "write_offsets"), (slots.Slot, "publish")]
    for target, name in places:
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(target, name, dying)
            follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
        if janitor_writes:
            keeper(log).write(log.partitions, checkpoints.RECOVERY_POINT)
    follower_log.change(log.partition(), EPOCH, follower_log.cut_to(log.partition(), 4))
    assert log.partition().state().leo == 4 and points(log)[0] <= 4
