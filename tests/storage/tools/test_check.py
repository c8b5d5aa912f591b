"""The checker against directories that are right, and each kind of fault put into one."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.commands.check import command
from odradek.protocol.batch import HEADER_SIZE
from odradek.protocol.records import batch_v2
from odradek.storage.config import LogConfig
from odradek.storage.files import checkpoints, names
from odradek.storage.producers import snapshots
from odradek.storage.producers.producer_state import AbortedTxn, ProducedBatch, ProducerEntry
from odradek.storage.recovery import recovery
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check as check_module
from odradek.storage.tools.check import check, log_bytes
from tests.storage.logs import batch, message, run_of_batches, write_segment
from tests.storage.written import offset_entry, time_entry, write_snapshot

TOPIC_ID = bytes(range(16))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two partitions, one of two segments."""
    first, second = tmp_path / "t-0", tmp_path / "t-1"
    write_segment(first, 0, run_of_batches(0, 100))
    write_segment(first, 100, run_of_batches(100, 60, epoch=1), sealed=False)
    write_segment(second, 0, [message(0), message(1), batch(2, 3)], sealed=False)
    EpochCache([(0, 0), (1, 100)]).write(first)
    for directory in (first, second):
        checkpoints.write_partition_metadata(directory, TOPIC_ID)
    entry = ProducerEntry(0, -1, 5, -1, [ProducedBatch(0, 0, 99, 99, 5, 0)])
    write_snapshot(first, 100, {7: entry})
    offsets = {("t", 0): 160, ("t", 1): 5}
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        checkpoints.write_offsets(tmp_path, name, offsets)
    checkpoints.write_offsets(tmp_path, checkpoints.LOG_START, {("t", 0): 3})
    return tmp_path


def faults(directory: Path, **options: Any) -> list[str]:
    return [str(fault).removeprefix(f"{directory}/") for fault in check(directory, **options)]


def test_intact_directory_has_no_faults(data: Path) -> None:
    assert faults(data) == faults(data, deep=True) == []
    assert faults(data / "t-0") == []
    read: list[int] = []
    assert list(check(data, progress=read.append)) == []
    assert sum(read) == log_bytes(data) > 0


def test_forgotten_epochs_below_the_log_start_are_no_fault(data: Path) -> None:
    """DeleteRecords within a segment, and a start after a kill: the epoch is then known from the log start on."""
    recovery.recover(data / "t-0", LogConfig(), log_start=3)
    assert EpochCache.read(data / "t-0").entries[0] == (0, 3)
    assert faults(data) == faults(data / "t-0") == []
    EpochCache([(0, 4), (1, 100)]).write(data / "t-0")
    assert any("leader-epoch-checkpoint says -1" in line for line in faults(data))


def test_a_batch_that_begins_below_the_log_start_is_no_fault(tmp_path: Path) -> None:
    """DeleteRecords within it; the checkpoint of the log start may not say so yet."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, [batch(0, 5), batch(5, 5)], sealed=False)
    for log_start in (3, 5):
        EpochCache([(0, log_start)]).write(directory)
        checkpoints.write_offsets(tmp_path, checkpoints.LOG_START, {("t", 0): log_start})
        assert faults(tmp_path) == faults(directory) == []
    EpochCache([(0, 3)]).write(directory)
    checkpoints.write_offsets(tmp_path, checkpoints.LOG_START, {})
    assert faults(tmp_path) == faults(directory) == []


def test_a_log_start_that_is_older_than_retention_is_no_fault(data: Path) -> None:
    """It is written once a minute; segments are deleted in between."""
    for kind in names.SEGMENT_SUFFIXES:
        names.segment_path(data / "t-0", 0, kind).unlink(missing_ok=True)
    assert faults(data) == faults(data / "t-0") == []


def test_file_removed_after_the_listing_is_no_fault(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI met it: the cleaner removed a snapshot between the two."""

    def lost(directory: Path) -> list[int]:
        found = snapshots.snapshot_offsets(directory)
        for offset in found:
            os.unlink(names.segment_path(directory, offset, names.SNAPSHOT))
        return found

    monkeypatch.setattr(check_module, "snapshot_offsets", lost)
    assert list(check(data)) == []
    assert not list((data / "t-0").glob("*.snapshot"))


def test_partition_deleted_during_the_check_is_no_fault(data: Path) -> None:
    def delete(read: int) -> None:
        if (data / "t-0").exists():
            shutil.rmtree(data / "t-0")

    assert list(check(data, progress=delete)) == []


def test_partition_that_keeps_changing_is_reported(data: Path) -> None:
    """A lasting fault is reported as a fault, not as a passing change."""
    changing = itertools.count()
    flip(f"t-0/{names.offset_name(0)}.log", 118 * 50 + 90)(data)
    spoil = lambda read: (data / "t-0" / f"{next(changing)}").touch()  # noqa: E731
    assert [str(fault) for fault in check(data / "t-0", progress=spoil)] == [
        f"{data / 't-0'}: its files keep changing: stop the broker that uses it, then check again"
    ]


LOG0, LOG100 = (f"t-0/{names.offset_name(base)}" for base in (0, 100))


def flip(name: str, position: int) -> Callable[[Path], None]:
    def spoil(data: Path) -> None:
        content = bytearray((data / name).read_bytes())
        content[position] ^= 1
        (data / name).write_bytes(content)

    return spoil


def append(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(data: Path) -> None:
        with (data / name).open("ab") as file:
            file.write(content)

    return spoil


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda data: (data / name).write_bytes(content)  # type: ignore[return-value]  # the count is not used


def remove(name: str) -> Callable[[Path], None]:
    return lambda data: os.unlink(data / name)


def offsets(name: str, value: int) -> Callable[[Path], None]:
    return lambda data: checkpoints.write_offsets(data, name, {("t", 0): value})


def entry(base: int, offset: int, position: int) -> bytes:
    return offset_entry(base, offset, position)


def epochs(*entries: tuple[int, int]) -> Callable[[Path], None]:
    return lambda data: EpochCache(entries).write(data / "t-0")


PAST = snapshots.encode({7: ProducerEntry(0, -1, 5, -1, [ProducedBatch(0, 0, 50, 50, 5, 0)])})


@pytest.mark.parametrize(
    ("spoil", "path", "message"),
    [
        (flip(LOG0 + ".log", 118 * 50 + 90), LOG0 + ".log", "damaged at byte 5900"),
        (append(LOG100 + ".log", b"half a batch"), LOG100 + ".log", "torn write"),
        (append(LOG0 + ".log", batch(50)), LOG0 + ".log", "comes after offset 99"),
        (append(LOG0 + ".log", batch(100)), LOG100 + ".log", "the segment before it ends at 101"),
        (append(LOG100 + ".log", batch(170, epoch=1)), LOG100 + ".log", "offsets 160 to 169 are missing"),
        (append(LOG100 + ".log", batch(160, epoch=7)), LOG100 + ".log", "its leader epoch is 7"),
        (append(LOG0 + ".index", entry(0, 90, 7)), LOG0 + ".index", "comes after"),
        (append(LOG100 + ".index", entry(100, 158, 118 * 58 + 1)), LOG100 + ".index", "no batch begins there"),
        (append(LOG100 + ".index", entry(100, 157, 118 * 58)), LOG100 + ".index", "ends at offset 158"),
        (append(LOG100 + ".index", entry(100, 900, 118 * 90)), LOG100 + ".index", "past the end"),
        (append(LOG0 + ".index", b"abc"), LOG0 + ".index", "not whole entries"),
        (remove(LOG0 + ".timeindex"), LOG0 + ".timeindex", "is missing"),
        (write(LOG0 + ".timeindex", b""), LOG0 + ".timeindex", "the segment's largest is 1099"),
        (write(LOG100 + ".timeindex", time_entry(100, 9, 110)), LOG100 + ".timeindex", "is 1110"),
        (write("t-0/00000000000000000005.index", b""), "t-0/00000000000000000005.index", "has no .log file"),
        (write(LOG100 + ".snapshot", b"\0\1x"), LOG100 + ".snapshot", "are too few"),
        (
            write("t-0/00000000000000000900.snapshot", PAST),
            "t-0/00000000000000000900.snapshot",
            "past the log",
        ),
        (write("t-0/00000000000000000050.snapshot", PAST), "t-0/00000000000000000050.snapshot", "producer 7"),
        (write(LOG0 + ".txnindex", AbortedTxn(1, 5, 500, 501).pack()), LOG0 + ".txnindex", "not within"),
        (epochs((0, 0), (1, 100), (2, 161)), "t-0/leader-epoch-checkpoint", "epoch 2 begins at offset 161"),
        (epochs((0, 0)), LOG100 + ".log", "leader-epoch-checkpoint says 0"),
        (write("t-0/leader-epoch-checkpoint", b"0\n3\n"), "t-0/leader-epoch-checkpoint", "3 entries announced"),
        (write("t-1/partition.metadata", b"version: 9"), "t-1/partition.metadata", "version"),
        (
            lambda data: checkpoints.write_partition_metadata(data / "t-1", bytes(16)),
            "t-1/partition.metadata",
            "other partitions of the topic AAECAwQFBgcICQoLDA0ODw",
        ),
        (offsets(checkpoints.RECOVERY_POINT, 161), checkpoints.RECOVERY_POINT, "has offset 161"),
        (offsets(checkpoints.HIGH_WATERMARK, 161), checkpoints.HIGH_WATERMARK, "its log ends at 160"),
        (write(checkpoints.CLEANER, b"0\n1\nx\n"), checkpoints.CLEANER, "malformed"),
        (write("meta.properties", b"version=8\n"), "meta.properties", "version 8"),
        (lambda data: (data / "photos").mkdir(), ".", "photos is not <topic>-<partition>"),
    ],
)
def test_each_fault_is_one_line(data: Path, spoil: Callable[[Path], None], path: str, message: str) -> None:
    spoil(data)
    found = list(check(data))
    assert [f for f in found if f.path == data / path and message in f.message], found
    assert all("\n" not in str(fault) for fault in found)


def test_one_damage_does_not_hide_another(data: Path) -> None:
    flip(LOG0 + ".log", 118 * 20 + 90)(data)
    flip(LOG0 + ".log", 118 * 70 + 90)(data)
    assert sum("is damaged" in line for line in faults(data)) == 2


def test_gaps_of_a_compacted_log_are_no_fault(tmp_path: Path) -> None:
    directory = tmp_path / "c-0"
    write_segment(directory, 0, [batch(5), batch(9)], sealed=False)
    assert len(faults(tmp_path)) == 2
    checkpoints.write_offsets(tmp_path, checkpoints.CLEANER, {("c", 0): 0})
    assert faults(tmp_path) == []  # a follower that has cleaned nothing has its leader's gaps
    assert list(check(directory)) == []
    checkpoints.write_offsets(tmp_path, checkpoints.CLEANER, {("d", 0): 10})
    assert len(faults(tmp_path)) == 2


def test_deep_finds_records_that_do_not_decode(tmp_path: Path) -> None:
    raw = bytearray(batch(0, 3))
    raw[HEADER_SIZE] = 100  # the first record's length
    batch_v2.set_crc(raw)
    write_segment(tmp_path / "t-0", 0, [bytes(raw)], sealed=False)
    assert faults(tmp_path) == []
    assert "cannot be read" in faults(tmp_path, deep=True)[0]


def test_the_command(data: Path) -> None:
    done = CliRunner().invoke(command, [str(data)])
    assert (done.exit_code, done.stdout) == (0, "")
    append(LOG100 + ".log", b"half a batch")(data)
    done = CliRunner().invoke(command, [str(data)])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{data}/{LOG100}.log: ends in a torn write")
    assert len(done.stdout.splitlines()) == 1
    done = CliRunner().invoke(command, ["--json", str(data)])
    assert '"fault": "ends in a torn write' in done.stdout


def test_check_without_arguments_prints_usage() -> None:
    done = CliRunner().invoke(command, [])
    assert "Usage" in done.output
    assert "odradek check ./data" in done.output
