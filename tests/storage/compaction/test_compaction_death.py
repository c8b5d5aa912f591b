"""A compaction dies at every single step: the next holder of the lock continues it, and so does the next start."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.ipc import slots
from odradek.protocol.records import batch_v2, convert
from odradek.storage.compaction import compaction
from odradek.storage.compaction.compaction import CleaningAborted, Compaction, DedupeBuffer
from odradek.storage.files import checkpoints, names
from odradek.storage.files.durable import Files, StrPath
from odradek.storage.log import control_batch, swap
from odradek.storage.log.partition import LockNotAvailable, Partition
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.recovery import recovery
from odradek.storage.recovery.crash_cleanup import tidy
from odradek.storage.tools import check

from ...harness.process import die_with_parent
from ..live import NOW, Live, live
from ..test_death import _deaths, _dies_at
from .compacting import Kept, compact, consume, keyed, put, seal

CONFIG = {"segment_bytes": 700, "index_interval_bytes": 100, "cleanup_policy": "compact", "delete_retention_ms": 0}


def _fill(partition: Partition) -> dict[bytes, bytes]:
    """Two groups of segments, the second with several, and an aborted transaction; returns the last values."""

    last = {}
    for n in range(12):
        key, value = b"%d" % (n % 3), b"%d" % n * 60
        put(partition, keyed([(key, value)]))
        last[key] = value
        if n in (8, 9, 10):
            seal(partition)
    put(partition, keyed([(b"0", b"aborted")], producer=5, sequence=0, transaction=True))
    control_batch.write_marker(partition, 5, 0, 1, False, NOW)
    put(partition, keyed([(b"9", b"last")]))
    seal(partition)
    return {**last, b"9": b"last"}


def _values(found: list[Kept]) -> dict[bytes | None, bytes | None]:
    return {one.key: one.value for one in found if one.value != b"aborted"}


def _faults(world: Live) -> list[str]:
    return [str(fault) for fault in check.check(world.root / "t-0", deep=True)]


@pytest.mark.slow
def test_death_at_every_step(tmp_path: Path) -> None:
    for step, world in _deaths(tmp_path, **CONFIG):
        expected = _fill(world.partition())
        reader = world.partition(2)
        before = consume(reader)

        def work(partition: Partition, world: Live = world) -> None:
            assert compact(partition, world) is not None

        died = _dies_at(world, step, work)
        if died and step % 2:  # after each call; the files are the same before the next
            _restart(world, tmp_path / "copy", expected)
        after = consume(reader)  # repairs the damage that it finds, or reads the old files
        assert set(after) <= set(before), f"step {step}"
        assert _values(after) == expected, f"step {step}"
        partition = world.partition(3)
        put(partition, keyed([(b"new", b"")]))
        assert _values(consume(world.partition(4))) == {**expected, b"new": b""}, f"step {step}"
        assert not _faults(world), f"step {step}"
        seal(partition)
        compact(partition, world)
        found = consume(partition)
        assert _values(found) == {**expected, b"new": b""}, f"step {step}"
        assert len(found) == len(_values(found)), f"step {step}"
        assert not _faults(world), f"step {step}"
        assert not [name for name in os.listdir(world.root / "t-0") if name.endswith((".cleaned", ".swap"))]
        if not died:
            assert step > 20
            return
    pytest.fail("the work never came to its end")


def _fill_four_segments(partition: Partition) -> None:
    """At offsets 0, 1 and 2, and the active one at 3; compaction leaves nothing of the second."""
    for key, value in ((b"a", b"1" * 60), (b"b", b"2" * 60), (b"b", b"3" * 500)):
        put(partition, keyed([(key, value)]))
        seal(partition)
    put(partition, keyed([(b"c", b"active")]))


def _leave_deleted(partition: Partition) -> None:
    """`.deleted` files beside all segments but the first, as of others at the same offsets."""
    for file in names.segment_files(partition.directory):
        if file.offset:
            shutil.copy(
                names.segment_path(partition.directory, *file),
                names.segment_path(partition.directory, file.offset, file.kind, names.DELETED),
            )


@pytest.mark.parametrize("leftovers", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.slow
def test_death_while_an_emptied_segment_is_renamed(tmp_path: Path, leftovers: bool) -> None:
    """The new segment ends before it, so that its offsets do not tell that it was replaced too.

    Nor do `.deleted` files, which may be of former segments at the offsets where the log has grown again.
    """
    for step, world in _deaths(tmp_path, **CONFIG):
        partition = world.partition()
        _fill_four_segments(partition)
        if leftovers:
            _leave_deleted(partition)

        def work(mine: Partition, world: Live = world) -> None:
            assert compact(mine, world) is not None

        died = _dies_at(world, step, work)
        expected = {b"a": b"1" * 60, b"b": b"3" * 500, b"c": b"active"}
        assert _values(consume(world.partition(2))) == expected, f"step {step}"
        with world.partition(3).locked():
            pass
        assert not _faults(world), f"step {step}"
        compact(world.partition(3), world)
        assert _values(consume(world.partition(4))) == expected, f"step {step}"
        if not died:
            return
    pytest.fail("the work never came to its end")


@pytest.mark.parametrize("renames", range(5))
def test_replaced_segment_with_a_log_file_has_its_transaction_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The janitor dies while it puts the segment aside, and the broker before another process takes the lock."""
    for kind in names.SEGMENT_SUFFIXES:
        Path(names.segment_path(tmp_path, 10, kind)).touch()
    Path(names.segment_path(tmp_path, 0, names.LOG, names.SWAP)).touch()
    left, rename = iter(range(renames)), os.rename

    def dying(source: str, target: str) -> None:
        rename(source, target)
        if next(left, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", dying)
        swap._move_in(str(tmp_path), 0, [10])
    assert swap._replaced(str(tmp_path), 0) == ([10] if renames < 3 else [])  # the snapshot comes last, and may stay
    found = os.listdir(tmp_path)
    if names.offset_name(10) + names.LOG in found:
        assert names.offset_name(10) + names.TXN_INDEX in found


class _Dying(Files):
    """Dies instead of the rename or removal number `left`, from 0."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _one_less(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def rename(self, old: StrPath, new: StrPath) -> None:
        self._one_less()
        super().rename(old, new)

    def unlink(self, path: StrPath) -> None:
        self._one_less()
        super().unlink(path)


@pytest.mark.parametrize("renames", range(5))
def test_start_during_a_swap_keeps_the_new_transaction_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The janitor dies while it renames the new segment, and so does each start, a step later than the one before."""
    new = dict.fromkeys(names.INDEXES, b"")
    new |= {
        names.TXN_INDEX: AbortedTxn(7, 0, 0, 0).pack(),
        names.LOG: batch_v2.build([(0, NOW, b"k", b"v", ())], base_offset=0),
    }
    for kind, content in new.items():
        names.segment_path(tmp_path, 0, kind).write_bytes(b"")
        names.segment_path(tmp_path, 0, kind, names.SWAP).write_bytes(content)
    dying = _Dying(renames)
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "rename", dying.rename)
        swap._move_in(str(tmp_path), 0, [])
    for steps in range(20):
        with suppress(KeyboardInterrupt):
            tidy(tmp_path, [], files=_Dying(steps))
            break
    else:
        pytest.fail("the start never ended")
    assert names.segment_path(tmp_path, 0, names.TXN_INDEX).read_bytes() == new[names.TXN_INDEX]
    assert names.segment_path(tmp_path, 0).read_bytes() == new[names.LOG]
    assert not names.segment_files(str(tmp_path), names.SWAP)


def _restart(world: Live, copy: Path, expected: dict[bytes, bytes]) -> None:
    """The same directory after a kill of the whole broker."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(world.root / "t-0", copy / "t-0")
    offsets = checkpoints.read_offsets(world.root, checkpoints.CLEANER)
    checkpoints.write_offsets(copy, checkpoints.CLEANER, offsets)
    found = recovery.recover(copy / "t-0", world.partition(5).config)
    assert found.leo == world.partition(5).state().leo
    assert [str(fault) for fault in check.check(copy / "t-0", deep=True)] == []
    records: dict[bytes | None, bytes | None] = {}
    for path in sorted((copy / "t-0").glob("*.log")):
        for one in convert.split(path.read_bytes()):
            if not batch_v2.header(one).is_control:
                records.update({row[2]: row[3] for row in batch_v2.iterate(one) if row[3] != b"aborted"})
    assert records == expected


@pytest.mark.slow
def test_cleaner_killed_at_random_with_a_writer_and_a_reader(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    with live(tmp_path, **{**CONFIG, "segment_bytes": 5000}) as world:
        writer, reader = world.partition(), world.partition(1)
        last: dict[bytes, bytes] = {}

        def compact_for_ever() -> None:
            partition = world.partition(2)
            while True:
                try:
                    if compact(partition, world) is None:
                        time.sleep(0.001)
                except (LockNotAvailable, FileNotFoundError, CleaningAborted):
                    continue

        def start() -> int:
            pid = os.fork()
            if not pid:
                die_with_parent()
                try:
                    compact_for_ever()
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            return pid

        for turn in range(15):
            pid = start()
            deadline = time.monotonic() + rng.random() * 0.15
            n = 0
            while time.monotonic() < deadline or n < 40:
                key, value = b"%d" % rng.randrange(30), b"%d:%d" % (turn, n) * 10
                while True:
                    try:
                        put(writer, keyed([(key, value)]))
                        break
                    except LockNotAvailable:
                        continue
                last[key] = value
                n += 1
                if n % 20 == 0:
                    assert _values(consume(reader)) == last
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
            assert _values(consume(reader)) == last
        put(writer, keyed([(b"end", b"")]))
        assert not _faults(world)
        seal(writer)
        compact(writer, world)
        found = consume(world.partition(4))
        assert _values(found) == {**last, b"end": b""}
        assert len(found) == len(_values(found))
        assert not _faults(world)


def test_failed_rename_leaves_the_old_segment_with_its_index(tmp_path: Path) -> None:
    """The disk may refuse any rename of a swap, as when it is full; the files renamed before are not used."""
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        expected = _fill(partition)
        before = consume(partition)
        blocked = names.segment_path(world.root / "t-0", 0, names.LOG, names.SWAP)
        going = Compaction(partition, compaction.find_range(partition, 0, NOW), DedupeBuffer(chunk_bytes=1), NOW)
        with pytest.raises(IsADirectoryError):
            for _ in going.steps():
                blocked.mkdir(exist_ok=True)
        assert _faults(world) == []
        blocked.rmdir()
        assert consume(world.partition(2)) == before
        assert _faults(world) == []
        compact(partition, world)
        assert _values(consume(partition)) == expected


def test_old_segments_stay_if_the_new_one_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another process has removed it: the round is aborted, and the old segments stay."""
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        expected = _fill(partition)
        before, put_in_place = consume(partition), swap.put_in_place

        def bereft(partition: Partition, values: slots.Fields, replaced: list[int]) -> None:
            os.unlink(names.segment_path(partition.directory, replaced[0], names.LOG, names.CLEANED))
            put_in_place(partition, values, replaced)

        with monkeypatch.context() as patch, pytest.raises(CleaningAborted):
            patch.setattr(swap, "put_in_place", bereft)
            compact(partition, world)
        assert consume(world.partition(3)) == before
        assert _faults(world) == []
        compact(partition, world)
        assert _values(consume(partition)) == expected
