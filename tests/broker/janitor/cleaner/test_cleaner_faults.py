"""Faults of the log cleaner: a failing or full disk, damaged logs, unexpected exceptions."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor.cleaner_offsets import CleanerOffsets
from odradek.broker.janitor.log_cleaner import LogCleaner
from odradek.ipc import slots
from odradek.protocol.records import batch_v2
from odradek.storage.compaction import compaction
from odradek.storage.files import checkpoints
from odradek.storage.files.durable import FILES
from odradek.storage.log import append_as_follower
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.tools.check import check

from ...partitions import now_ms
from .cleaning import Maker, checkpoint, cleaner, until_idle, write


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_failed_checkpoint_write_delays_no_other_log(
    bench: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = bench(count=3)
    other = tmp_path / "other"
    other.mkdir()
    log.config = replace(log.config, log_dirs=(str(log.data), str(other)))
    for index in range(3):
        log.partition(index).slot.update(state=slots.FOLLOWER, log_dir=int(index > 0))
    write_offsets = checkpoints.write_offsets

    def refused(log_dir: Any, name: str, offsets: Any) -> None:
        if str(log_dir) == str(log.data):
            raise OSError(number, os.strerror(number))
        write_offsets(log_dir, name, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", refused)
    met: list[tuple[str, OSError]] = []
    cleaner(log, met).step()
    assert [(name, error.errno) for name, error in met] == ([("t-0", number)] if number == errno.EIO else [])
    assert checkpoints.read_offsets(other, checkpoints.CLEANER) == {("t", 1): 0, ("t", 2): 0}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_followers_log_may_have_gaps_before_it_is_cleaned_here(bench: Maker, enabled: bool) -> None:
    """The leader's cleaner has made the gaps."""
    log = bench(count=3)
    for index in (0, 2):
        log.partition(index).slot.update(state=slots.FOLLOWER)
        with log.partition(index).locked() as values:
            data = b"".join(bytes(_at(offset)) for offset in (0, 7, 9))
            append_as_follower.append(log.partition(index), values, data, 0, 0, now_ms())
    assert len(list(check(log.data))) == 4
    one = cleaner(log, log_cleaner_enable=enabled)
    one.step()
    assert checkpoint(log) == {("t", 0): 0, ("t", 2): 0}
    assert list(check(log.data)) == []
    until_idle(one)
    assert one._offsets.get(log.partition(1)) is None


def _at(offset: int) -> bytearray:
    data = bytearray(batch_v2.build([(0, now_ms(), b"k", b"v", ())]))
    data[:8] = offset.to_bytes(8, "big")
    return data


def test_damaged_log_is_skipped_and_others_are_compacted(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    log = bench(count=2)
    write(log.partition(0), 60)
    write(log.partition(1), 30)
    path = log.data / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    one = cleaner(log)
    while until_idle(one):
        pass
    assert "t-0: compaction failed" in caplog.text
    assert checkpoint(log)[("t", 1)] > 0
    assert checkpoint(log)[("t", 0)] == 0
    assert path.read_bytes() == data


def test_batch_with_unordered_offsets_delays_nothing(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    """The batch was written while the topic was not compacted: its log is compacted around it."""
    log = bench(count=2)
    for index in range(2):
        for deltas in ((3, 2, 1, 0), (0, 1, 2, 3), (0, 0)):
            body, _ = batch_v2.encode_records([(delta, now_ms(), b"0", b"", ()) for delta in deltas], 0)
            span = batch_v2.RecordsSpan(0, len(deltas) - 1, now_ms(), now_ms(), len(deltas))
            data = bytearray(batch_v2.assemble(body, span, 0))
            with log.partition(index).locked() as values:
                append(log.partition(index), values, [Batch(memoryview(data), len(deltas), now_ms())], now_ms())
        write(log.partition(index), 30)
    one = cleaner(log)
    while until_idle(one):
        pass
    assert set(checkpoint(log)) == {("t", 0), ("t", 1)}
    assert all(offset > 30 for offset in checkpoint(log).values())
    assert [record.levelname for record in caplog.records if "the cleaner keeps" in record.getMessage()] == [
        "WARNING"
    ] * 4


@pytest.mark.parametrize(
    "where",
    [
        "find_range",
        "CleanerOffsets.put",
        "Compaction.steps",
        "Compaction._build_map",
        "Compaction._swap",
        "LogCleaner._finish",
    ],
)
def test_unexpected_exception_affects_only_its_log(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """The janitor continues, the log is skipped until the next start, and the log line has the traceback."""
    log = bench(count=2)
    write(log.partition(0), 60)
    write(log.partition(1), 30)
    one = cleaner(log)
    owner, name = _found(where)
    method = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        if "t-0" in (repr(getattr(arguments[0], "partition", None)), *map(repr, arguments)):
            raise ZeroDivisionError("was not expected")
        return method(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        while until_idle(one):
            pass
    assert until_idle(one) == 0
    assert checkpoint(log)[("t", 1)] > 0
    assert checkpoint(log).get(("t", 0), 0) == 0
    assert not list((log.data / "t-0").glob("*.cleaned"))
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert "t-0" in said[0].getMessage()
    assert said[0].exc_info is not None
    assert said[0].exc_info[0] is ZeroDivisionError
    until_idle(cleaner(log))
    assert checkpoint(log)[("t", 0)] > 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("where", ["find_range", "CleanerOffsets.put", "Compaction._build_map", "LogCleaner._finish"])
def test_log_with_disk_errors_delays_no_other(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    """The error is logged, other logs are compacted, and this log is compacted when the disk recovers."""
    log = bench(count=2)
    write(log.partition(0), 60)  # the dirtiest log comes first
    write(log.partition(1), 30)
    met: list[tuple[str, OSError]] = []
    one = cleaner(log, met)
    owner, name = _found(where)
    method = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        if "t-0" in (repr(getattr(arguments[0], "partition", None)), *map(repr, arguments)):
            raise OSError(number, os.strerror(number))
        return method(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        for _ in range(3):
            until_idle(one)
    assert {(name, error.errno) for name, error in met} == {("t-0", number)}
    assert checkpoint(log)[("t", 1)] > 0
    assert checkpoint(log).get(("t", 0), 0) == 0
    until_idle(one)
    assert checkpoint(log)[("t", 0)] > 0


def _found(where: str) -> tuple[Any, str]:
    """(owner, name) of a function of the cleaner."""
    *path, name = where.split(".")
    owners = {"LogCleaner": LogCleaner, "Compaction": compaction.Compaction, "CleanerOffsets": CleanerOffsets}
    return owners[path[0]] if path else compaction, name


def test_a_full_disk_is_no_reason_to_go_offline(bench: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench()
    write(log.partition(), 30)
    met: list[tuple[str, OSError]] = []
    one = cleaner(log, met)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(type(FILES), "_pwrite_some", full)
        patch.setattr(CleanerOffsets, "put", lambda *_: None)
        until_idle(one)
    assert not list((log.data / "t-0").glob("*.cleaned"))
    one.step()
    with monkeypatch.context() as patch:  # until its last step, which writes the checkpoint
        patch.setattr(CleanerOffsets, "put", full)
        until_idle(one)
    assert one.partition is None
    until_idle(one)
    assert checkpoint(log)[("t", 0)] > 0
    with monkeypatch.context() as patch:
        write(log.partition(), 60)
        patch.setattr(type(FILES), "_pwrite_some", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "dead")))
        one._offsets.put = lambda *_: None  # type: ignore[method-assign]  # a test double
        until_idle(one)
        assert [(name, error.strerror) for name, error in met] == [("t-0", "dead")]


def test_log_with_disk_errors_is_not_restarted_during_another_round(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench(count=2)
    write(log.partition(0), 30)
    write(log.partition(1), 3000, keys=3000)
    met: list[tuple[str, OSError]] = []
    one = cleaner(log, met, log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=1e6)
    build_map = compaction.Compaction._build_map

    def failing(self: compaction.Compaction) -> Iterator[int]:
        if repr(self.partition) == "t-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return build_map(self)

    monkeypatch.setattr(compaction.Compaction, "_build_map", failing)
    until_idle(one)
    assert [name for name, _ in met] == ["t-0"]
    assert checkpoint(log)["t", 1] > 2900
