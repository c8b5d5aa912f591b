"""The log cleaner's checkpoint: after a restart, truncations, and beyond the log end."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from odradek.ipc.locks import PartitionLocks
from odradek.storage.compaction import compaction
from odradek.storage.files import checkpoints
from odradek.storage.files.durable import FILES

from .cleaning import Maker, checkpoint, cleaner, until_idle, write


def test_another_janitor_goes_on_from_the_checkpoint(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    until_idle(cleaner(log))
    upto = checkpoint(log)
    assert until_idle(cleaner(log)) == 0
    assert checkpoint(log) == upto


def test_lines_of_logs_that_the_metadata_does_not_name_stay(bench: Maker) -> None:
    log = bench()
    (log.data / "unread-0").mkdir()
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("unread", 0): 5, ("gone", 0): 6})
    write(log.partition(), 30)
    until_idle(cleaner(log))
    assert checkpoint(log) == {("t", 0): checkpoint(log)["t", 0], ("unread", 0): 5}


def test_a_truncated_log_is_dirty_from_its_start(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    until_idle(one)
    assert one._offsets.get(log.partition()) == checkpoint(log)[("t", 0)] > 0
    log.partition().slot.update(truncations=1)
    assert one._offsets.get(log.partition()) == 0
    until_idle(one)
    assert one._offsets.get(log.partition()) == checkpoint(log)[("t", 0)] > 0


def test_a_truncation_is_known_after_the_next_start(bench: Maker) -> None:
    """Keys of records after the truncation point were not cleaned, so these records must not count as clean."""
    log = bench(count=2)
    write(log.partition(0), 30)
    write(log.partition(1), 30)
    one = cleaner(log)
    while until_idle(one):
        pass
    upto = checkpoint(log)
    one.record_truncations()
    assert checkpoint(log) == upto
    log.partition(0).slot.update(truncations=1)
    one.record_truncations()
    assert checkpoint(log) == {("t", 0): 0, ("t", 1): upto[("t", 1)]}
    log.partition(0).slot.update(truncations=0)  # the state at a start
    assert cleaner(log)._offsets.get(log.partition(0)) == 0


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_truncation_seen_by_the_cleaner_is_checkpointed(bench: Maker, policy: str) -> None:
    """Also of a topic that is currently not compacted."""
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    until_idle(one)
    log.configure(cleanup_policy=policy)
    log.partition().slot.update(truncations=1)
    assert one._offsets.get(log.partition()) == 0
    one.record_truncations()
    assert checkpoint(log) == {("t", 0): 0}


def test_truncation_is_kept_if_its_checkpoint_cannot_be_written(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's line is older than the truncation; lines of the other logs are written."""
    log = bench(count=2)
    for index in (0, 1):
        write(log.partition(index), 30)
    one = cleaner(log)
    while until_idle(one):
        pass
    upto = checkpoint(log)
    for index in (0, 1):
        log.partition(index).slot.update(truncations=1)
    write_offsets = checkpoints.write_offsets

    def full(log_dir: Any, name: str, offsets: checkpoints.Offsets, **_: Any) -> None:
        if offsets["t", 0] != upto["t", 0]:
            raise OSError(errno.ENOSPC, "full")
        write_offsets(log_dir, name, offsets)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(checkpoints, "write_offsets", full)
        one.record_truncations()
    assert checkpoint(log) == {("t", 0): upto["t", 0], ("t", 1): 0}
    assert one._offsets.get(log.partition()) == 0
    one.record_truncations()
    assert checkpoint(log) == {("t", 0): 0, ("t", 1): 0}


@pytest.mark.slow
def test_a_truncation_within_a_round_that_changes_nothing_moves_no_checkpoint(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 3000, keys=3000)
    for steps in (1, 2):  # before the first step, and after it
        one = cleaner(log, log_cleaner_io_max_bytes_per_second=1e6)
        for _ in range(steps):
            one.step()
        log.partition().slot.update(truncations=steps)
        while one.partition is not None:
            one.step()
        assert checkpoint(log) == {("t", 0): 0}


def test_a_swap_that_a_dead_janitor_has_not_synced_is_synced_before_the_checkpoint(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next round finds a clean log and swaps nothing, but a power failure may still undo the renames."""
    log = bench()
    write(log.partition(), 30)
    done: list[str] = []
    sync_dir, write_offsets = FILES.sync_dir, checkpoints.write_offsets

    def dies(_: object) -> None:
        raise KeyboardInterrupt

    generation = -1
    while generation != log.partition().state().generation:  # repeat until a round swaps nothing
        generation = log.partition().state().generation
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(compaction.Compaction, "_abort_if_truncated", dies)
            until_idle(cleaner(log))
    assert checkpoint(log) == {("t", 0): 0}

    def sync(directory: Any) -> None:
        if str(directory).endswith("t-0"):
            done.append("synced")
            assert PartitionLocks(log.run_dir / "partition.lock").try_lock(log.partition().slot.number), (
                "no lock is held"
            )
        sync_dir(directory)

    def written(log_dir: Any, name: str, offsets: Any) -> None:
        done.append(f"up to {offsets['t', 0]}")
        write_offsets(log_dir, name, offsets)

    monkeypatch.setattr(FILES, "sync_dir", sync)
    monkeypatch.setattr(checkpoints, "write_offsets", written)
    until_idle(cleaner(log))
    assert done == ["synced", f"up to {checkpoint(log)['t', 0]}"], "the sync must precede the checkpoint"
    assert checkpoint(log)["t", 0] > 0


def test_log_truncated_by_recovery_is_dirty_from_there(bench: Maker) -> None:
    """The log grows beyond the cleaner's checkpoint before the cleaner checks it."""
    log = bench()
    write(log.partition(), 30)
    until_idle(cleaner(log))
    assert checkpoint(log)["t", 0] > 10
    for path in (log.data / "t-0").iterdir():
        path.unlink()
    log.close()
    again = bench()
    assert again.partition().state().leo == 0
    write(again.partition(), 30)
    one = cleaner(again)
    assert one._offsets.get(again.partition()) == 0
    one.record_truncations()
    assert checkpoint(again) == {("t", 0): 0}


def test_checkpoint_beyond_the_log_end_is_reset(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    """After damage or a repair of the file, the log would grow beyond it, and its new records would count as clean."""
    log = bench(count=2)
    for index in range(2):
        write(log.partition(index), 30)
    one = cleaner(log)
    until_idle(one)
    upto = checkpoint(log)
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {**upto, ("t", 0): 40})
    log.configure(min_cleanable_dirty_ratio=1.0)  # no round is due
    until_idle(one)
    assert checkpoint(log) == {**upto, ("t", 0): 0}
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [message.split(":")[0] for message in said] == ["t-0"]
    assert "40 is beyond the log end offset 30" in said[0]


def test_checkpoint_beyond_the_log_end_is_ignored_if_it_cannot_be_rewritten(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench()
    write(log.partition(), 30)
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("t", 0): 40})
    met: list[tuple[str, OSError]] = []
    one = cleaner(log, met)

    def refused(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_offsets", refused)
        until_idle(one)
    assert [name for name, _ in met] == ["t-0"]
    write(log.partition(), 30)
    assert one._offsets.get(log.partition()) == 0
    until_idle(one)
    assert 40 < checkpoint(log)["t", 0] < 60


def test_checkpoint_beyond_the_log_end_is_logged_at_a_start(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    log = bench()
    write(log.partition(), 30)
    log.close()
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("t", 0): 4503599627370796})
    again = bench()
    assert "4503599627370796 is beyond the log end offset 30" in caplog.text
    assert cleaner(again)._offsets.get(again.partition()) == 0
