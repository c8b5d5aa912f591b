"""Logs that the janitor opens at a start, and the id of the boot in which they were recovered."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.janitor import janitor
from odradek.ipc import slots
from odradek.storage.dirs import boot_id
from odradek.storage.files import checkpoints, names
from odradek.storage.log import opening
from odradek.storage.recovery import recovery
from odradek.storage.segment.epochs import EpochCache

from ..partitions import Bench
from .benches import Maker


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
def test_replicated_log_opens_with_its_checkpointed_high_watermark(
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


def test_impossible_epochs_do_not_stop_a_start(bench: Maker) -> None:
    log = bench(count=2)
    for index in (0, 1):
        log.append(index)
        log.partition(index).slot.update(state=slots.RECOVERING)
    (log.data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n-1 0\n")
    opening.open_all(log.partitions.log, log.partitions.names(), log.partitions.log_dirs(), lambda: None)
    assert [log.partition(index).state().state for index in (0, 1)] == [slots.LEADER] * 2
    assert EpochCache.read(log.data / "t-0").entries == ((0, 0),)


def test_exception_in_opening_a_log_takes_only_that_log_offline(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise each process that helps to open logs would end, and the broker would never start."""
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


def test_boot_id_is_written_after_the_recovery_of_all_logs(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records missing in logs that are opened later may be lost with the machine's boot: this is no damage."""
    log = bench()
    (log.data / boot_id.FILE_NAME).write_text("another\n")
    (log.data / "unread-0").mkdir()
    one = noter(log)
    one._record_boot()
    assert boot_id.restarted_since(log.data) and one._noting.period_ms < math.inf
    (log.data / "unread-0").rename(log.data / names.marked_dir("unread", 0, names.STRAY_DIR))
    one._record_boot()
    assert not boot_id.restarted_since(log.data) and one._noting.period_ms == math.inf


def test_boot_id_is_not_written_if_a_log_was_unreadable(bench: Maker) -> None:
    """If the error is temporary, records lost with the machine would count as damage at the next start."""
    log = bench(count=2)
    (log.data / boot_id.FILE_NAME).write_text("another\n")
    segment, away = log.data / "t-0" / names.segment_path("", 0), log.data.parent / "away"
    segment.rename(away)
    segment.mkdir()  # gives an error that is no disk error, also for root
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


def test_boot_id_is_written_with_a_damaged_log(bench: Maker) -> None:
    """The damaged log was checked; the other logs need no excuse at the next start."""
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
    """A janitor with recovered logs, without its wakeup and signals."""
    one: Any = janitor.Janitor.__new__(janitor.Janitor)
    one._process = SimpleNamespace(config=log.config, shared=log.shared)
    one._partitions, one._log_dir_failures = log.partitions, SimpleNamespace(broken=())
    one._recovering, one._noting = False, janitor.PeriodicTask(janitor.NOTE_LOOK_MS, one._record_boot)
    return one


def recover_again(log: Bench) -> None:
    """Recover as at the next start."""
    for partition in log.partitions:
        partition.slot.update(state=slots.RECOVERING, recovers_to=slots.LEADER)
    opening.open_all(log.partitions.log, log.partitions.names(), log.partitions.log_dirs(), lambda: None)
