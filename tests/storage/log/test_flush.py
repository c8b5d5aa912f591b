"""All offsets below the slot's flushed offset are on the disk, with any append or truncation during a sync."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from odradek.ipc import slots
from odradek.storage.files import durable
from odradek.storage.files.disks import SyncFailed
from odradek.storage.log import flush, truncate
from odradek.storage.log.flush import Flush
from odradek.storage.log.partition import Partition

from ..live import batch, live, put


class Syncing:
    """A process that syncs the log: its flush, and the records that its fsync covers."""

    def __init__(self, partition: Partition) -> None:
        self.flush = Flush.begin(partition)
        self.caught: set[int] | None = None


class Flushes(RuleBasedStateMachine):
    """Any number of flushes of one log at once, each cut into its steps, among appends and truncations.

    A record is known by a number that no other ever gets: `log` says which is at an offset, `synced` which of them
    an fsync has covered that began when they were there.
    """

    flushes: Bundle[Syncing] = Bundle("flushes")

    @initialize()
    def begin_log(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.context = live(Path(self.folder.name), segment_bytes=300)
        self.partition = self.context.__enter__().partition()
        self.log: list[int] = []
        self.synced: set[int] = set()
        self.made = 0

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        for _ in range(count):
            put(self.partition, batch(b"%d" % self.made))
            self.log.append(self.made)
            self.made += 1

    @rule(data=st.data())
    @precondition(lambda self: self.log)
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.log)))
        with self.partition.locked() as values:
            truncate.truncate(self.partition, values, offset)
        del self.log[offset:]

    @rule(target=flushes)
    def begin(self) -> Syncing:
        return Syncing(self.partition)

    @rule(one=flushes)
    def fsync_starts(self, one: Syncing) -> None:
        if one.caught is None:
            values = self.partition.slot.read()
            segments = {path.rsplit(".", 1)[0] for path in one.flush.paths if path.endswith(".log")}
            one.caught = {
                number
                for offset, number in enumerate(self.log)
                if os.path.join(self.partition.directory, f"{self.partition.segment_of(offset, values):020d}")
                in segments
            }

    @rule(one=flushes)
    def fsync_ends(self, one: Syncing) -> None:
        if one.caught is not None:
            one.flush.sync()
            self.synced |= one.caught

    @rule(one=consumes(flushes))
    def publish(self, one: Syncing) -> None:
        self.fsync_starts(one)
        self.fsync_ends(one)
        with self.partition.locked() as values:
            one.flush.publish(values)

    @invariant()
    def flushed_is_on_the_disk(self) -> None:
        state = self.partition.state()
        assert state.flushed <= state.leo == len(self.log)
        assert set(self.log[: state.flushed]) <= self.synced

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.partition.close_files()
            del self.partition
            self.context.__exit__(None, None, None)
            gc.collect()
            self.folder.cleanup()


TestFlushes = pytest.mark.slow(Flushes.TestCase)
TestFlushes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_failed_fsync_ends_the_use_of_its_log_directory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is published: another fsync of that file may succeed without the lost data."""

    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, "no disk")

    with live(tmp_path) as made:
        partition = made.partition()
        put(partition, batch(b"a"))
        one = Flush.begin(partition)
        monkeypatch.setattr(durable.FILES, "fsync", fails)
        one.sync()
        assert partition.owner.shared.failed_dirs() == [0]
        with pytest.raises(SyncFailed), partition.locked() as values:
            one.publish(values)
        assert partition.state().state == slots.OFFLINE
        assert partition.state().flushed == 0


def test_offline_log_publishes_no_flushed_offset(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        partition = made.partition()
        put(partition, batch(b"a"))
        partition.slot.update(state=slots.OFFLINE)
        one = Flush.begin(partition)
        assert one.paths == []
        with pytest.raises(OSError, match="offline"), partition.locked() as values:
            one.publish(values)
        assert partition.state().flushed == 0


def test_older_flush_does_not_lower_the_flushed_offset(tmp_path: Path) -> None:
    with live(tmp_path) as made:
        partition = made.partition()
        put(partition, batch(b"a"))
        early = Flush.begin(partition)
        put(partition, batch(b"b"))
        late = Flush.begin(partition)
        for one in (late, early):
            one.sync()
            with partition.locked() as values:
                one.publish(values)
            assert partition.state().flushed == 2


def test_flush_of_files_that_retention_has_deleted(tmp_path: Path) -> None:
    flush.sync_files([str(tmp_path / "gone.log")])
