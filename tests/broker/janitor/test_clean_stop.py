"""The clean stop: flushes, and the condition for the clean mark."""

from __future__ import annotations

import errno
import json
import os

import pytest

from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.broker.process.checkpoint_writer import CheckpointWriter
from odradek.broker.process.partitions import Partitions
from odradek.broker.supervisor import shutdown
from odradek.broker.supervisor.boot import Boot
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.ipc import roles, slots
from odradek.ipc.locks import RoleLocks
from odradek.ipc.shm import Shared
from odradek.storage.files import checkpoints, names
from odradek.storage.log import flush

from ..partitions import Bench
from .benches import Maker


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
    """No log was opened: no log may count as synced that did not before, and checkpoints keep all lines."""
    log = bench(count=2)
    lines = {("t", 0): 1, ("t", 1): 7}
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, lines)
    untold = Shared.create(f"/odradek-test-{os.getpid()}-untold-", 1, 16)
    try:
        booted = _boot(log)
        booted.config, booted.shared = log.config.with_clean([clean]), untold
        CheckpointWriter([str(log.data)], CheckpointLocks(log.run_dir)).write(
            Partitions(untold, log.run_dir, log.config, roles.JANITOR), checkpoints.LOG_START
        )
        shutdown.finish(booted)
    finally:
        untold.destroy()
    for name in checkpoints.OFFSET_CHECKPOINTS:
        assert checkpoints.read_offsets(log.data, name) == lines
    assert checkpoints.consume_clean_shutdown(log.data) == clean


def test_a_log_that_the_metadata_does_not_name_keeps_its_lines(bench: Maker) -> None:
    """For instance, the topic's node in ZooKeeper was malformed. The log may have changed, so no stop is clean."""
    log = bench(count=2, clean=True)
    log.append(0)
    lines = {("t", 1): 1, ("gone", 0): 2, ("unread", 0): 3, ("unread", 1): 4, ("unread", 2): 0}
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(log.data, name, lines)
    for index in (0, 2, 3):
        (log.data / f"unread-{index}").mkdir()
    keeper = CheckpointWriter([str(log.data)], CheckpointLocks(log.run_dir))
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
    """The controller process restarted while the topic's node was malformed."""
    log = bench(count=2)
    log.append(0)
    keeper = CheckpointWriter([str(log.data)], CheckpointLocks(log.run_dir))
    keeper.write(log.partitions, checkpoints.HIGH_WATERMARK)
    raw = raw_snapshot(log.shared.metadata.version + 1, "c", 0, [], {}, {})
    log.shared.metadata.publish(raw["version"], json.dumps(raw).encode())
    log.partitions.follow()
    assert not list(log.partitions)
    keeper.write(log.partitions, checkpoints.HIGH_WATERMARK)
    assert checkpoints.read_offsets(log.data, checkpoints.HIGH_WATERMARK) == {("t", 0): 1, ("t", 1): 0}
