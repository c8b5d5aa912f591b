"""What the janitor does to real partitions: flush, checkpoints, retention, removal, producer expiry, clean stop."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.janitor import file_deletion, janitor, retention
from odradek.broker.process import flush as flushing
from odradek.broker.process.checkpoint_lock import CheckpointLocks, FormerLines
from odradek.broker.process.checkpoint_writer import PICK, Checkpoints
from odradek.broker.process.partitions import Partitions
from odradek.broker.supervisor import shutdown
from odradek.broker.supervisor.boot import Boot
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.ipc import roles, slots
from odradek.ipc.locks import PartitionLocks, RoleLocks
from odradek.ipc.shm import Shared
from odradek.storage.dirs import boot_id
from odradek.storage.files import checkpoints, names
from odradek.storage.log import flush, opening, truncate
from odradek.storage.log.partition import Busy, Partition
from odradek.storage.recovery import recovery
from odradek.storage.segment.epochs import EpochCache

from ...storage.log.test_append_and_read import broken
from ..partitions import Bench, now_ms

DAY_MS = 86_400_000
Maker = Callable[..., Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Maker]:
    made: list[Bench] = []

    def make(**arguments: Any) -> Bench:
        made.append(Bench(tmp_path, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_sync_publishes_the_recovery_point(bench: Maker) -> None:
    log = bench()
    assert not flushing.sync(log.partition())
    assert log.append() == 1
    assert [repr(one) for one in log.partitions.unflushed()] == ["t-0"]
    assert flushing.sync(log.partition())
    assert log.partition().state().flushed == 1
    assert log.partition().state().unflushed_since == 0
    assert not list(log.partitions.unflushed())


def test_sync_counts_nothing_after_a_truncation(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench()
    log.append()

    def truncated_meanwhile(_paths: object) -> None:
        state = log.partition().state()
        log.partition().slot.publish(state._replace(truncations=state.truncations + 1))

    monkeypatch.setattr(flush, "sync_files", truncated_meanwhile)
    flushing.sync(log.partition())
    assert log.partition().state().flushed == 0


def test_sealed_segments_are_flushed_and_the_active_one_by_flush_ms(bench: Maker) -> None:
    log = bench(segment_bytes=300)
    for _ in range(3):
        log.append()
    state = log.partition().state()
    assert 0 < state.active_base < 3
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == state.active_base
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == state.active_base


def test_flush_ms(bench: Maker) -> None:
    log = bench(flush_ms=0)
    log.append()
    janitor._flush_due(log.partition())
    assert log.partition().state().flushed == 1


def test_busy_partition(bench: Maker) -> None:
    log = bench()
    other = PartitionLocks(log.run_dir / "partition.lock")
    assert other.try_lock(0)
    with pytest.raises(Busy), flushing.patiently(log.partition()):
        pass
    other.unlock(0)
    other.close()
    with flushing.patiently(log.partition()):
        pass


def keeper(log: Any) -> Checkpoints:
    return Checkpoints([str(log.data)], CheckpointLocks(log.data.parent))


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
    """The janitor has not heard of the deletion yet; whoever is next of that name must not find them."""
    log = bench(count=2)
    log.append(0)
    written = keeper(log)
    written.write(log.partitions, checkpoints.HIGH_WATERMARK)
    log.partition(0).slot.update(state=state)
    written.write(log.partitions, checkpoints.HIGH_WATERMARK)
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 1): 0}


def test_former_lines_are_forgotten_and_stay_so(bench: Maker) -> None:
    """Also those of a partition that is not open yet: they are read again from the file."""
    log = bench(count=2)
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, {("t", 0): 7, ("t", 1): 9})
    log.partition(0).slot.update(state=slots.RECOVERING)
    written = keeper(log)
    written.write(log.partitions, checkpoints.LOG_START)
    FormerLines([str(log.data)], CheckpointLocks(log.data.parent)).forget("t", 0, 0)
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


def test_retention_by_time_takes_old_segments_and_then_the_active_one(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=DAY_MS)
    for _ in range(4):
        log.append(timestamp=now_ms() - 2 * DAY_MS)
    log.append()
    young = log.partition().state().active_base
    assert young >= 3
    assert retention.Aging().trim(log.partition(), now_ms()) > 0
    state = log.partition().state()
    assert (state.log_start, state.leo) == (young, 5)
    assert len(log.files(".log")) == 1
    assert retention.Aging().trim(log.partition(), now_ms()) == 0
    assert retention.Aging().trim(log.partition(), now_ms() + 2 * DAY_MS) > 0
    state = log.partition().state()
    assert (state.log_start, state.leo, state.active_base, state.active_size) == (5, 5, 5, 0)
    assert log.append() == 6


def test_retention_by_size(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_bytes=400)
    for _ in range(6):
        log.append()
    assert retention.Aging().trim(log.partition(), now_ms()) > 0
    left = sum((log.data / "t-0" / name).stat().st_size for name in log.files(".log"))
    assert left >= 400
    assert log.partition().state().log_start > 0


def test_no_retention_above_the_high_watermark(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_ms=1)
    for _ in range(4):
        log.append(timestamp=1)
    state = log.partition().state()
    log.partition().slot.publish(state._replace(hw=1))
    retention.Aging().trim(log.partition(), now_ms())
    assert log.partition().state().log_start <= 1


def test_compact_only_topics_keep_old_records(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=1)
    config = log.partition().config
    log.append(timestamp=1)
    log.append(timestamp=1)
    log.partition().config = type(config)(cleanup_policy=("compact",), retention_ms=1)
    assert retention.Aging().trim(log.partition(), now_ms()) == 0


def test_deleted_files_wait_for_their_delay(bench: Maker) -> None:
    log = bench(segment_bytes=200, retention_ms=1, file_delete_delay_ms=60_000)
    for _ in range(3):
        log.append(timestamp=1)
    retention.Aging().trim(log.partition(), now_ms())
    marked = log.files(".deleted")
    assert marked
    assert file_deletion.remove_segments(log.partition(), now_ms()) == (0, len(marked))
    assert file_deletion.remove_segments(log.partition(), now_ms() + 60_001) == (len(marked), 0)
    assert not log.files(".deleted")


def test_what_cannot_be_removed_keeps_nothing_else(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench(segment_bytes=200, retention_ms=1, file_delete_delay_ms=0)
    for _ in range(3):
        log.append(timestamp=1)
    directory = Path(log.partition().directory)
    (directory / "kept.deleted").mkdir()
    retention.Aging().trim(log.partition(), now_ms())
    stuck = log.files(".log.deleted")[0]
    unlink = os.unlink

    def unlink_or_refuse(path: str) -> None:
        if os.path.basename(path) == stuck:
            raise PermissionError(errno.EPERM, "an immutable file", path)
        unlink(path)

    monkeypatch.setattr(file_deletion.os, "unlink", unlink_or_refuse)
    for _ in range(2):
        with pytest.raises(PermissionError, match="immutable"):
            file_deletion.remove_segments(log.partition(), now_ms())
        assert set(log.files(".deleted")) == {"kept.deleted", stuck}
    monkeypatch.undo()
    assert file_deletion.remove_segments(log.partition(), now_ms()) == (1, 0)


def test_a_directory_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that a file system is mounted at; what is in it goes."""
    doomed = tmp_path / f"t-0.{'0' * 32}-delete"
    doomed.mkdir()
    (doomed / "file").touch()
    told: list[tuple[str, OSError]] = []

    def busy(path: str, **_: Any) -> None:
        raise OSError(errno.EBUSY, "busy", path)

    monkeypatch.setattr(os, "rmdir", busy)
    found = file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0, lambda *what: told.append(what))
    monkeypatch.undo()
    assert found == (0, 1) and [path for path, _ in told] == [str(doomed)]
    assert not (doomed / "file").exists()
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (1, 0)


def test_a_link_to_a_directory_is_removed_alone(tmp_path: Path) -> None:
    """People move partitions to other disks by hand."""
    elsewhere, link = tmp_path / "elsewhere", tmp_path / f"t-1.{'0' * 32}-delete"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    link.symlink_to(elsewhere)
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (1, 0)
    assert not link.is_symlink() and (elsewhere / "file").exists()


@pytest.mark.parametrize("target", ["gone", "itself"])
def test_a_link_that_leads_nowhere_is_removed(tmp_path: Path, target: str) -> None:
    """The disk that it led to is not mounted. What waits beside it goes as well."""
    link, doomed = (tmp_path / f"t-{number}.{'0' * 32}-delete" for number in (1, 2))
    link.symlink_to(link if target == "itself" else tmp_path / "gone")
    doomed.mkdir()
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 1, 0) == (2, 0)
    assert list(tmp_path.iterdir()) == []


def test_only_marked_directories_are_removed(tmp_path: Path) -> None:
    doomed = tmp_path / f"t-0.{'0' * 32}-delete"
    kept = [tmp_path / "t-1", tmp_path / f"t-2.{'0' * 32}-stray", tmp_path / "nonsense-delete"]
    for path in (doomed, *kept):
        path.mkdir()
        (path / "file").touch()
    assert file_deletion.remove_directories(str(tmp_path), now_ms(), 60_000) == (0, 1)
    assert file_deletion.remove_directories(str(tmp_path), now_ms() + 60_001, 60_000) == (1, 0)
    assert not doomed.exists()
    assert all(path.exists() for path in kept)


def test_changed_partitions_are_found_by_generation(bench: Maker) -> None:
    log = bench(count=2, segment_bytes=200)
    known = {one.slot.number: (one.state().incarnation, one.state().generation) for one in log.partitions}
    assert not list(log.partitions.changed(known))
    log.append(1)
    log.append(1)
    assert [repr(one) for one in log.partitions.changed(known)] == ["t-1"]


def test_idle_producers_are_forgotten(bench: Maker) -> None:
    log = bench()
    log.append(producer=5, timestamp=now_ms() - DAY_MS)
    log.append(producer=6)
    assert retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 1
    with log.partition().locked() as values:
        table = log.partition().producers.table(values[slots.F_PSTATE_GEN])
        assert table is not None
        assert [entry.producer_id for entry in table.entries()] == [6]
    assert retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 0
    prefix = log.partition().owner.shared.prefix.removeprefix("/")
    assert len([name for name in os.listdir("/dev/shm") if name.startswith(f"{prefix}producers-")]) == 1


def _boot(log: Bench) -> Boot:
    locks = RoleLocks(log.run_dir / "roles.lock")
    locks.hold(roles.SUPERVISOR)
    return Boot(log.config, log.run_dir, locks, log.shared, {})


def test_clean_stop_and_the_next_start(bench: Maker) -> None:
    log = bench(count=2)
    log.append(0, producer=5)
    log.append(1)
    shutdown.finish(_boot(log))
    assert checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT) == {("t", 0): 1, ("t", 1): 1}
    assert log.files(".snapshot") == ["00000000000000000001.snapshot"]
    assert checkpoints.consume_clean_shutdown(log.data)
    again = bench(count=2, clean=True)
    states = [again.partition(index).state() for index in (0, 1)]
    assert [(state.leo, state.flushed) for state in states] == [(1, 1), (1, 1)]
    with again.partition(0).locked() as values:
        table = again.partition(0).producers.table(values[slots.F_PSTATE_GEN])
        assert table is not None and table.find(5) >= 0


@pytest.mark.parametrize("state", [slots.OFFLINE, slots.RECOVERING])
def test_no_clean_mark_with_a_partition_that_was_not_closed(bench: Maker, state: int) -> None:
    log = bench(count=2)
    log.append(1)
    log.partition(0).slot.publish(log.partition(0).state()._replace(state=state))
    shutdown.finish(_boot(log))
    assert not checkpoints.consume_clean_shutdown(log.data)
    assert log.partition(1).state().flushed == 1


def test_no_clean_mark_when_the_disk_fails(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench()
    log.append()

    def fail(_paths: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flush, "sync_files", fail)
    shutdown.finish(_boot(log))
    assert not checkpoints.consume_clean_shutdown(log.data)
    assert os.listdir(log.data / "t-0")


def test_the_rest_is_flushed_when_one_partition_cannot_be(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench(count=2)
    for index in (0, 1):
        log.append(index)
    sync_files = flush.sync_files

    def fail(paths: list[str]) -> None:
        if any("/t-0/" in path for path in paths):
            raise OSError(errno.EMFILE, "no descriptor to open it")
        sync_files(paths)

    monkeypatch.setattr(flush, "sync_files", fail)
    shutdown.finish(_boot(log))
    assert not checkpoints.consume_clean_shutdown(log.data)
    assert [log.partition(index).state().flushed for index in (0, 1)] == [0, 1]
    assert checkpoints.read_offsets(log.data, checkpoints.RECOVERY_POINT) == {("t", 0): 0, ("t", 1): 1}


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_before_any_metadata_leaves_all_as_it_was(bench: Maker, clean: bool) -> None:
    """No log was looked at: none counts as synced that did not before, and no checkpoint forgets any."""
    log = bench(count=2)
    lines = {("t", 0): 1, ("t", 1): 7}
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, lines)
    untold = Shared.create(f"/odradek-test-{os.getpid()}-untold-", 1, 16)
    try:
        booted = _boot(log)
        booted.config, booted.shared = log.config.with_clean([clean]), untold
        Checkpoints([str(log.data)], CheckpointLocks(log.run_dir)).write(
            Partitions(untold, log.run_dir, log.config, roles.JANITOR), checkpoints.LOG_START
        )
        shutdown.finish(booted)
    finally:
        untold.destroy()
    for name in checkpoints.OFFSET_CHECKPOINTS:
        assert checkpoints.read_offsets(log.data, name) == lines
    assert checkpoints.consume_clean_shutdown(log.data) == clean


def test_a_log_that_the_metadata_does_not_name_keeps_its_lines(bench: Maker) -> None:
    """Its topic's node in ZooKeeper made no sense, perhaps. It may have been in use before: no stop is clean."""
    log = bench(count=2, clean=True)
    log.append(0)
    lines = {("t", 1): 1, ("gone", 0): 2, ("unread", 0): 3, ("unread", 1): 4, ("unread", 2): 0}
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, lines)
    for index in (0, 2, 3):
        (log.data / f"unread-{index}").mkdir()
    keeper = Checkpoints([str(log.data)], CheckpointLocks(log.run_dir))
    kept = {("unread", 0): 3, ("unread", 2): 0}
    for _ in range(2):
        for name, known in (
            (checkpoints.LOG_START, {}), (checkpoints.HIGH_WATERMARK, {("t", 0): 1, ("t", 1): 0}),
        ):  # fmt: skip
            keeper.write(log.partitions, name)
            assert checkpoints.read_offsets(log.data, name) == kept | known
    (log.data / "unread-0").rename(log.data / names.marked_dir("unread", 0, names.STRAY_DIR))
    keeper.write(log.partitions, checkpoints.LOG_START)
    assert checkpoints.read_offsets(log.data, checkpoints.LOG_START) == {("unread", 2): 0}
    shutdown.finish(_boot(log))
    assert not checkpoints.consume_clean_shutdown(log.data)


def test_a_log_that_leaves_the_metadata_keeps_its_lines(bench: Maker) -> None:
    """The controller's process was started again while its topic's node made no sense."""
    log = bench(count=2)
    log.append(0)
    keeper = Checkpoints([str(log.data)], CheckpointLocks(log.run_dir))
    keeper.write(log.partitions, checkpoints.HIGH_WATERMARK)
    raw = raw_snapshot(log.shared.metadata.version + 1, "c", 0, [], {}, {})
    log.shared.metadata.publish(raw["version"], json.dumps(raw).encode())
    log.partitions.follow()
    assert not list(log.partitions)
    keeper.write(log.partitions, checkpoints.HIGH_WATERMARK)
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 0): 1, ("t", 1): 0}


# Followers


def follow(log: Bench, index: int = 0) -> None:
    log.partition(index).slot.update(state=slots.FOLLOWER)


def test_a_followers_old_segments_go_up_to_its_high_watermark(bench: Maker) -> None:
    log = bench(segment_bytes=300, retention_ms=1000)
    for n in range(9):
        log.append(timestamp=now_ms() - DAY_MS + n)
    follow(log)
    log.partition().slot.update(hw=5)
    retention.Aging().trim(log.partition(), now_ms())
    assert 3 <= log.partition().state().log_start <= 5


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


def test_what_is_synced_is_not_shown_before_the_leader_says_so(bench: Maker) -> None:
    log = bench(odradek_visible_after_flush="true")
    log.append()
    follow(log)
    flushing.sync(log.partition())
    assert (log.partition().state().flushed, log.partition().state().hw) == (1, 0)


def test_truncations_are_seen(bench: Maker) -> None:
    """The janitor then writes the recovery points at once."""
    log = bench()
    for _ in range(3):
        log.append()
    follow(log)
    before = log.partitions.truncations()
    with log.partition().locked() as values:
        truncate.truncate(log.partition(), values, 1)
    assert log.partitions.truncations() == before + 1


@pytest.mark.parametrize(
    ("checkpointed", "hw_quorum", "state", "hw"),
    [
        (2, 3, slots.FOLLOWER, 2),
        (None, 3, slots.FOLLOWER, 0),
        (9, 3, slots.FOLLOWER, 4),
        (2, 1, slots.FOLLOWER, 2),
        (2, 3, slots.LEADER, 2),
        (2, 1, slots.LEADER, 4),
    ],
)
def test_a_log_that_others_have_is_opened_with_its_checkpointed_high_watermark(
    bench: Maker, checkpointed: int | None, hw_quorum: int, state: int, hw: int
) -> None:
    log = bench()
    for _ in range(4):
        log.append()
    offsets = {} if checkpointed is None else {("t", 0): checkpointed}
    checkpoints.write_offsets(log.data, checkpoints.HIGH_WATERMARK, offsets)
    log.partition().slot.update(state=slots.RECOVERING, recovers_to=state, hw_quorum=hw_quorum)
    log_dirs = [opening.LogDir.read(str(log.data), clean=False)]
    opening.open_all(log.partitions.log, log.partitions.names(), log_dirs, lambda: None)
    found = log.partition().state()
    assert (found.state, found.leo, found.hw) == (state, 4, hw)


def test_epochs_that_cannot_be_hold_up_no_start(bench: Maker) -> None:
    log = bench(count=2)
    for index in (0, 1):
        log.append(index)
        log.partition(index).slot.update(state=slots.RECOVERING)
    (log.data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n-1 0\n")
    opening.open_all(log.partitions.log, log.partitions.names(), log.partitions.log_dirs(), lambda: None)
    assert [log.partition(index).state().state for index in (0, 1)] == [slots.LEADER] * 2
    assert EpochCache.read(log.data / "t-0").entries == ((0, 0),)


def test_a_log_that_cannot_be_opened_for_a_fault_of_ours_is_offline_and_others_are_opened(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each process that helps to open logs would end by it, and the broker never start."""
    log = bench(count=2)
    recover = recovery.recover

    def failing(directory: str, *arguments: Any, **options: Any) -> recovery.Recovered:
        if directory.endswith("t-0"):
            raise ZeroDivisionError("was not expected")
        return recover(directory, *arguments, **options)

    monkeypatch.setattr(recovery, "recover", failing)
    for index in (0, 1):
        log.partition(index).slot.update(state=slots.RECOVERING)
    opening.open_all(log.partitions.log, log.partitions.names(), log.partitions.log_dirs(), lambda: None)
    assert [log.partition(index).state().state for index in (0, 1)] == [slots.OFFLINE, slots.LEADER]
    assert "ZeroDivisionError" in caplog.text


def test_the_high_watermark_is_never_below_the_log_start(bench: Maker) -> None:
    log = bench()
    for _ in range(4):
        log.append()
    checkpoints.write_offsets(log.data, checkpoints.LOG_START, {("t", 0): 3})
    log.partition().slot.update(state=slots.RECOVERING, recovers_to=slots.FOLLOWER)
    log_dirs = [opening.LogDir.read(str(log.data), clean=False)]
    opening.open_all(log.partitions.log, log.partitions.names(), log_dirs, lambda: None)
    assert (log.partition().state().hw, log.partition().state().leo) == (3, 4)


def test_producers_are_forgotten_later_where_there_is_no_memory_for_it(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/shm is full: an OSError like a full disk's, so that the janitor goes on with its other work."""
    log = bench()
    log.append(producer=5, timestamp=now_ms() - DAY_MS)
    with monkeypatch.context() as full, pytest.raises(OSError, match="has no room"):
        full.setattr(os, "posix_fallocate", broken(errno.ENOSPC))
        retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2)
    assert log.partition().state().pstate_gen == 1
    assert retention.expire_producers(log.partition(), now_ms(), DAY_MS // 2) == 1


def test_a_boot_is_noted_when_all_logs_were_recovered_also_those_without_a_name_yet(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a log lacks that is opened later, the machine may have lost: that is no damage."""
    log = bench()
    (log.data / boot_id.FILE_NAME).write_text("another\n")
    (log.data / "unread-0").mkdir()
    one = noter(log)
    one._record_boot()
    assert boot_id.restarted_since(log.data) and one._noting.period_ms < math.inf
    (log.data / "unread-0").rename(log.data / names.marked_dir("unread", 0, names.STRAY_DIR))
    one._record_boot()
    assert not boot_id.restarted_since(log.data) and one._noting.period_ms == math.inf


def test_a_boot_is_not_noted_while_a_log_could_not_be_looked_at(bench: Maker) -> None:
    """The error passes, and what the machine has taken of that log would be damage to the next start."""
    log = bench(count=2)
    (log.data / boot_id.FILE_NAME).write_text("another\n")
    segment, away = log.data / "t-0" / names.segment_path("", 0), log.data.parent / "away"
    segment.rename(away)
    segment.mkdir()  # gives an error that is not the disk's, also to root
    recover_again(log)
    assert [log.partition(index).state().state for index in (0, 1)] == [slots.OFFLINE, slots.LEADER]
    one = noter(log)
    one._record_boot()
    assert boot_id.restarted_since(log.data) and one._noting.period_ms < math.inf
    segment.rmdir()
    away.rename(segment)
    recover_again(log)
    one._record_boot()
    assert not boot_id.restarted_since(log.data) and one._noting.period_ms == math.inf


def test_a_boot_is_noted_though_a_log_is_damaged(bench: Maker) -> None:
    """It was looked at; for the others the next start need excuse nothing."""
    log = bench()
    for _ in range(3):
        log.append()
    segment = log.data / "t-0" / names.segment_path("", 0)
    segment.write_bytes(bytes(70) + segment.read_bytes()[70:])
    recover_again(log)
    assert log.partition().state().state == slots.OFFLINE
    (log.data / boot_id.FILE_NAME).write_text("another\n")
    noter(log)._record_boot()
    assert not boot_id.restarted_since(log.data)


def noter(log: Bench) -> Any:
    """A janitor whose logs are recovered, without its bell and signals."""
    one: Any = janitor.Janitor.__new__(janitor.Janitor)
    one._me = SimpleNamespace(config=log.config, shared=log.shared)
    one._partitions, one._disks = log.partitions, SimpleNamespace(broken=())
    one._recovering, one._noting = False, janitor.Task(janitor.NOTE_LOOK_MS, one._record_boot)
    return one


def recover_again(log: Bench) -> None:
    """As the next start does."""
    for partition in log.partitions:
        partition.slot.update(state=slots.RECOVERING, recovers_to=slots.LEADER)
    opening.open_all(log.partitions.log, log.partitions.names(), log.partitions.log_dirs(), lambda: None)


def test_a_fault_in_one_log_costs_no_other(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    log = bench(count=2)
    tasks = janitor.Janitor.__new__(janitor.Janitor)  # without its bell and signals
    tasks._partitions, tasks._faulty = log.partitions, set()
    tasks._disks = SimpleNamespace(broken=set())  # type: ignore[assignment]
    tasks._me = SimpleNamespace(shared=log.shared, beat=lambda: None)  # type: ignore[assignment]
    done: list[int] = []

    def act(partition: Partition) -> None:
        if partition.index == 0:
            raise ValueError("a fault of ours")
        done.append(partition.index)

    for _ in range(2):
        tasks._each("flush", act)
    assert done == [1, 1]
    assert caplog.text.count("flush: t-0") == 1, "told once"


@pytest.mark.parametrize(("given", "period"), [(5000, 5000), (1, 1), (0, math.inf), (-1, math.inf)])
def test_what_has_no_period_is_not_done_all_the_time(given: int, period: float) -> None:
    assert janitor._period_ms({"x.ms": given}, "x.ms") == period
