"""A reader without locks, on a partition's directory in every state that a death may leave."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.ipc import slots
from odradek.protocol.records import batch_v2, convert
from odradek.storage.files import names
from odradek.storage.log import roll, trim
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.tools import offline_reader
from odradek.storage.tools.offline_reader import DirectoryChanging, OfflineReader, OffsetBelowLogStart

from ...harness.process import turns
from ..compaction.compacting import compact, keyed
from ..live import Live, live, put

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0"}


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Longer than a reader's two seconds, which a busy machine may need between two lines of a test."""
    with pytest.MonkeyPatch.context() as patched:  # of its own: tests undo theirs
        patched.setattr(offline_reader, "_TIMEOUT", 60)
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path, **COMPACTED) as made:
        yield made


@pytest.fixture
def partition(world: Live) -> Partition:
    """Segments at 0, 3, 6 and 9, the last one active, of three batches with a key of their own each."""
    partition = world.partition()
    for first in range(0, 12, 3):
        if first:
            seal(partition)
        put(partition, *(keyed([(b"k%d" % number, b"value")]) for number in range(first, first + 3)))
    return partition


def seal(partition: Partition) -> None:
    with partition.locked() as values:
        roll.roll(partition, values)


def offsets(partition: Partition, start: int = 0, directory: str = "") -> list[int]:
    """The records that an offline reader finds, segment after segment."""
    files, found = OfflineReader(directory or partition.directory), []
    at: int | None = start
    while at is not None:
        segment = files.segment(at)
        data = os.pread(segment.file.fd, 1 << 20, segment.position)
        found += [row[0] for piece in convert.split(data) for row in batch_v2.iterate(piece) if row[0] >= at]
        at = segment.following
    return found


def renamed(partition: Partition, base: int, kind: str, mark: str, to: str) -> None:
    path = os.path.join(partition.directory, names.offset_name(base) + kind)
    os.rename(path + mark, path + to)


def test_segments_follow_one_another(partition: Partition) -> None:
    assert offsets(partition) == list(range(12))
    assert offsets(partition, 7) == list(range(7, 12))
    files = OfflineReader(partition.directory)
    assert [files.segment(at)[:2] for at in (2, 3, 8, 11)] == [(0, 3), (3, 6), (6, 9), (9, None)]
    assert files.segment(99).base == 9


def test_segment_without_index_is_below_the_log_start(partition: Partition) -> None:
    """The log start was published before, and the rows of aborted transactions may be gone."""
    renamed(partition, 0, names.INDEX, "", names.DELETED)
    with pytest.raises(OffsetBelowLogStart) as told:
        OfflineReader(partition.directory).segment(2)
    assert told.value.first == 3
    assert offsets(partition, 3) == list(range(3, 12))


def test_a_deletion_renames_the_index_first(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the test above takes it to be."""
    done = _renames(monkeypatch, lambda: trim.rename_below(partition.directory, [0, 3, 6, 9], 3))
    assert (done[0][0][-6:], done[-1][0][-4:]) == (names.INDEX, names.LOG)


def _renames(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[tuple[str, str]]:
    done: list[tuple[str, str]] = []
    rename = os.rename

    def noted(old: str, new: str) -> None:
        rename(old, new)
        done.append((str(old), str(new)))

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", noted)
        act()
    return done


def states_of_a_swap(partition: Partition, world: Live, room: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copies of the directory after each rename of a compaction, as a death would leave it."""
    states: list[Path] = []
    rename = os.rename

    def kept(old: str, new: str) -> None:
        rename(old, new)
        states.append(room / str(len(states)) / "t-0")
        shutil.copytree(partition.directory, states[-1])

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", kept)
        compact(partition, world)
    return states


def test_reader_refuses_a_directory_during_a_swap(
    partition: Partition, world: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(partition)
    put(partition, keyed([(b"last", b"value")]))
    states = states_of_a_swap(partition, world, tmp_path / "states", monkeypatch)
    assert len(states) > 10
    with monkeypatch.context() as patched:
        patched.setattr(offline_reader, "_TIMEOUT", 0.1)
        for state in states[:-1]:
            with pytest.raises(DirectoryChanging, match="keeps changing"):
                offsets(partition, directory=str(state))
    assert offsets(partition, directory=str(states[-1])) == list(range(13))


def test_reader_does_not_mix_files_from_before_and_after_a_swap(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is open; then another takes its place, with its own index and without aborted records and their rows."""
    path = os.path.join(partition.directory, names.offset_name(0))
    Path(path + names.TXN_INDEX).write_bytes(AbortedTxn(7, 0, 2, 3).pack())
    assert OfflineReader(partition.directory, committed=True).segment(0).aborted == [AbortedTxn(7, 0, 2, 3)]
    look = OfflineReader._position

    def swapped(self: OfflineReader, base: int, offset: int) -> int:
        monkeypatch.undo()
        for kind in (names.TXN_INDEX, names.INDEX, names.LOG):
            Path(path + kind + names.CLEANED).touch()
            os.rename(path + kind + names.CLEANED, path + kind)
        return look(self, base, offset)

    monkeypatch.setattr(OfflineReader, "_position", swapped)
    found = OfflineReader(partition.directory, committed=True).segment(1)
    assert (os.fstat(found.file.fd).st_size, found.aborted) == (0, [])


def test_names_are_listed_again_only_when_some_have_changed(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read opens thousands of segments; listing the directory for each would take longer than reading them."""
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    files = OfflineReader(partition.directory)
    assert [files.segment(at).base for at in (0, 3, 6, 9)] == [0, 3, 6, 9]
    assert len(listed) == 1
    monkeypatch.undo()
    seal(partition)
    assert files.segment(99).base == 12


def at_pause(number: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Do `action` in a reader's pause of that number; the pauses so far, in s."""
    pauses = list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == number:
            action()
        time.sleep(seconds)

    stand_in = SimpleNamespace(monotonic=time.monotonic, time_ns=time.time_ns, sleep=sleep)
    monkeypatch.setattr(offline_reader, "time", stand_in)
    return pauses


def test_reader_pauses_until_a_swap_ends(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed(partition, 3, names.LOG, "", names.SWAP)
    pauses = at_pause(20, lambda: renamed(partition, 3, names.LOG, names.SWAP, ""), monkeypatch)
    assert offsets(partition) == list(range(12))
    assert len(pauses) >= 20


def test_recently_changed_directory_is_listed_again(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes within one tick of the clock have the same mtime."""
    files, just_now = OfflineReader(partition.directory), time.time_ns() + 3600 * 10**9
    os.utime(partition.directory, ns=(just_now, just_now))
    rested = lambda: os.utime(partition.directory, ns=(0, 0))  # noqa: E731
    pauses = at_pause(3, rested, monkeypatch)
    files.segment(0)
    assert len(pauses) == 3


def test_another_directory_of_the_same_name_is_not_read(partition: Partition) -> None:
    files = OfflineReader(partition.directory)
    assert files.segment(0)
    os.rename(partition.directory, partition.directory + ".0-delete")
    with pytest.raises(OSError, match="No such file"):
        files.segment(0)
    shutil.copytree(partition.directory + ".0-delete", partition.directory)
    with pytest.raises(DirectoryChanging, match="another directory"):
        files.segment(0)


def test_readers_miss_nothing_while_the_janitor_swaps(world: Live) -> None:
    """Every four new segments become one with all before them; each successful read is complete."""
    partition, done = world.partition(), threading.Event()
    seen: list[tuple[list[int], int]] = []

    def look() -> None:
        while not done.is_set():
            end = partition.slot.read()[slots.F_LEO]
            seen.append((offsets(partition), end))

    reader = threading.Thread(target=look)
    reader.start()
    for number in turns(160, lambda: len(seen) > 20):
        put(partition, keyed([(b"k%d" % number, b"value")]))
        seal(partition)
        if number % 4 == 3:
            compact(partition, world)
            time.sleep(0.03)
    done.set()
    reader.join()
    assert len(seen) > 20
    assert [found for found, end in seen if found != list(range(max(end, len(found))))] == []
