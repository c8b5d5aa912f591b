"""Appends and reads through a shared slot, across segments, sizes and processes."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import replicas, slots
from odradek.ipc.slots import SlotState
from odradek.protocol import errors
from odradek.storage.config import LogConfig
from odradek.storage.files import names
from odradek.storage.log import leader_or_follower, read, repair, trim
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved, Unrepaired
from odradek.storage.recovery import recovery
from odradek.storage.tools import check

from ...harness.needs import jars
from ..live import NOW, batch, live, put, records
from . import by_time


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), min_size=1, max_size=40),
    st.sampled_from([200, 1000, 5000, 1 << 20]),
    st.integers(1, 2000),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_appended_records_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], segment: int, limit: int
) -> None:
    with live(tmp_path_factory.mktemp("p"), segment_bytes=segment, index_interval_bytes=64) as world:
        writer, reader = world.partition(0), world.partition(1)
        expected: list[tuple[int, bytes]] = []
        for values in batches:
            (base,) = put(writer, batch(*values))
            expected += enumerate(values, base)
        assert [offset for offset, _ in expected] == list(range(len(expected)))
        assert records(reader, limit=limit) == expected
        for offset, _ in expected[:: max(1, len(expected) // 5)]:
            assert records(world.partition(2), offset, limit) == expected[offset:]
        assert not list(check.check(world.root / "t-0"))


def test_many_batches_are_one_append(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=2000, index_interval_bytes=100) as world:
        partition = world.partition()
        bases = put(partition, *[batch(bytes([n]) * 150) for n in range(50)])
        assert bases == list(range(50))
        assert [value for _, value in records(partition)] == [bytes([n]) * 150 for n in range(50)]
        state = partition.state()
        assert len(partition.bases(state.active_base, state.generation)) > 4


def test_sealed_segments_end_with_their_time_and_are_not_larger_than_allowed(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=1000, index_interval_bytes=100) as world:
        partition = world.partition()
        for n in range(30):
            put(partition, batch(b"x" * 100, timestamp=NOW + n * 10))
        state = partition.state()
        bases = partition.bases(state.active_base, state.generation)
        for base, following in pairwise(bases):
            sealed = partition.sealed(base)
            assert sealed.size <= 1000
            newest = (NOW + (following - 1) * 10, following - 1 - base)
            assert sealed.time_index.last(sealed.time_index.entries) == newest


def test_segment_ms_rolls_by_record_time(tmp_path: Path) -> None:
    with live(tmp_path, segment_ms=1000) as world:
        partition = world.partition()
        put(partition, batch(b"a", timestamp=NOW))
        put(partition, batch(b"b", timestamp=NOW + 1000))
        assert partition.state().active_base == 0
        put(partition, batch(b"c", timestamp=NOW + 1001))
        assert partition.state().active_base == 2


def test_a_jitter_larger_than_segment_ms_does_not_seal_each_batch(tmp_path: Path) -> None:
    with live(tmp_path, segment_ms=60_000, segment_jitter_ms=(1 << 63) - 1) as world:
        partition = world.partition()
        for _ in range(50):
            put(partition, batch(b"x", timestamp=NOW))
        assert partition.state().active_base == 0
        put(partition, batch(b"x", timestamp=NOW + 60_001))
        assert partition.state().active_base == 50


def test_each_segment_of_each_log_has_a_jitter_of_its_own() -> None:
    config = LogConfig(segment_ms=60_000, segment_jitter_ms=20_000)
    ages = {config.seal_after_ms(log, base) for log in ("/d/a-0", "/d/a-1", "/e/a-0") for base in range(0, 100, 10)}
    assert len(ages) > 25 and min(ages) > 40_000 and max(ages) <= 60_000
    assert LogConfig(segment_ms=60_000).seal_after_ms("/d/a-0", 0) == 60_000


def test_offsets_by_time(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=700, index_interval_bytes=100) as world:
        partition = world.partition()
        stamps = [NOW + (n * 7919) % 1000 for n in range(60)]
        for stamp in stamps:
            put(partition, batch(b"x" * 50, timestamp=stamp))
        values = partition.slot.read()
        for wanted in (NOW - 5, NOW, NOW + 1, NOW + 500, NOW + 999, NOW + 1000):
            found = by_time.first_not_before(partition, values, wanted, 60)
            first = next((n for n, stamp in enumerate(stamps) if stamp >= wanted), None)
            assert (found.offset if found else None) == first
        newest = by_time.newest(partition, values, 60)
        assert newest is not None
        assert (newest.timestamp, newest.offset) == (max(stamps), stamps.index(max(stamps)))


def test_deleting_records_moves_the_start_and_lets_segments_go(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=500, index_interval_bytes=100) as world:
        partition, other = world.partition(), world.partition(1)
        for n in range(20):
            put(partition, batch(bytes([n]) * 100))
        assert len(records(other)) == 20
        with partition.locked() as values:
            gone = trim.advance(partition, values, 11)
        assert gone >= 2
        assert records(other)[0] == (11, bytes([11]) * 100)
        assert partition.state().log_start == 11
        left = {name for name in os.listdir(partition.directory) if name.endswith(names.DELETED)}
        assert len([name for name in left if ".log." in name]) == gone


def test_lock_that_is_held_is_an_error(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        one, other = world.partition(0), world.partition(1)
        with one.locked(), pytest.raises(LockNotAvailable):
            other.acquire()
        other.acquire()
        other.release()


def test_reused_slot_is_an_error_for_its_former_partition(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        put(partition, batch(b"a"))
        with partition.locked():
            partition.slot.update(incarnation=2)
        with pytest.raises(PartitionRemoved):
            partition.acquire()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (slots.FOLLOWER, errors.NOT_LEADER_OR_FOLLOWER),
        (slots.RECOVERING, errors.NOT_LEADER_OR_FOLLOWER),
        (slots.OFFLINE, errors.KAFKA_STORAGE_ERROR),
    ],
)
def test_only_a_leader_appends_records(tmp_path: Path, state: int, error: int) -> None:
    with live(tmp_path) as world:
        partition, refused = world.partition(), batch(b"a")
        with partition.locked():
            partition.slot.update(state=state)
        assert put(partition, refused) == [-1]
        assert refused.error == error


@pytest.mark.parametrize("call", ["pwritev", "pwrite"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_failed_write_acknowledges_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with live(tmp_path, index_interval_bytes=1) as world:
        partition, before, failing = world.partition(), batch(b"a"), batch(b"b")
        put(partition, before)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, broken(number))
            assert put(partition, failing) == [-1]
        assert failing.error == errors.KAFKA_STORAGE_ERROR
        assert not partition.owner.shared.failed_dirs()
        assert put(partition, batch(b"c")) == [1]
        assert records(world.partition(1)) == [(0, b"a"), (1, b"c")]
        assert not list(check.check(world.root / "t-0"))


@pytest.mark.parametrize("call", ["pwritev", "pwrite"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_broken_disk_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with live(tmp_path, index_interval_bytes=1) as world:
        partition, other, failing, late = world.partition(), world.partition(1), batch(b"b"), batch(b"c")
        put(partition, batch(b"a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, call, broken(number))
            assert put(partition, failing) == [-1]
        assert put(other, late) == [-1]
        assert failing.error == late.error == errors.KAFKA_STORAGE_ERROR
        assert other.state().state == slots.OFFLINE
        assert other.owner.shared.failed_dirs() == [0]
        assert not list(check.check(world.root / "t-0"))


def broken(number: int) -> Callable[..., int]:
    """A system call that fails with this errno."""

    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    with live(tmp_path) as world:
        partition = world.partition()
        monkeypatch.setattr(os, "pwritev", lambda fd, views, at: real(fd, [b"".join(views)[:10]], at))
        put(partition, batch(b"a" * 50), batch(b"b" * 50))
        assert records(partition) == [(0, b"a" * 50), (1, b"b" * 50)]


def test_idempotent_producers(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        one, other = world.partition(0), world.partition(1)
        first = batch(b"a", b"b", producer=5, sequence=0)
        assert put(one, first) == [0]
        assert put(other, batch(b"c", producer=5, sequence=2)) == [2]
        retry = batch(b"a", b"b", producer=5, sequence=0)
        assert (put(one, retry), retry.error) == ([0], errors.NONE)
        ahead = batch(b"d", producer=5, sequence=9)
        assert (put(one, ahead), ahead.error) == ([-1], errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
        put(one, batch(b"e", producer=5, epoch=1, sequence=0))
        zombie = batch(b"f", producer=5, epoch=0, sequence=3)
        assert (put(other, zombie), zombie.error) == ([-1], errors.INVALID_PRODUCER_EPOCH)
        assert [value for _, value in records(one)] == [b"a", b"b", b"c", b"e"]


@pytest.mark.parametrize("first", [False, True])
def test_possibly_superseded_leader_reports_no_sequence_gap(tmp_path: Path, first: bool) -> None:
    """The batch before may be in the log of a follower that was elected: it does not fetch, and this broker is cut off.
    With an error about a gap a producer gives its record up; with one about the leader it looks for the new leader.
    """
    with live(tmp_path) as world:
        partition = world.partition()
        if first:
            partition.lowest_sequences.record(5, 0, 0, math.inf)
        put(partition, batch(b"a", producer=5 + first, sequence=0))
        now_ms = time.monotonic_ns() // 1_000_000
        with partition.locked() as values:
            leader_or_follower.become_leader(partition, values, 1, [2, 3], [1, 2, 3], now_ms)
            fetched(partition, values, 2, now_ms)
            fetched(partition, values, 3, now_ms - 1500)
        assert _gap(partition) == errors.NOT_LEADER_OR_FOLLOWER
        with partition.locked() as values:
            fetched(partition, values, 3, now_ms)
        assert _gap(partition) == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        with partition.locked() as values:
            fetched(partition, values, 3, now_ms - 1500)
            leader_or_follower.apply_isr(partition, values, [1, 2])
        assert _gap(partition) == errors.OUT_OF_ORDER_SEQUENCE_NUMBER, "3 cannot be elected"


def fetched(partition: Partition, values: slots.Fields, broker: int, now_ms: int) -> None:
    row = replicas.find(partition.slot, broker)
    replicas.record_fetch(partition.slot, values, row, 1, 0, 1, now_ms)


def _gap(partition: Partition) -> int:
    ahead = batch(b"b", producer=5, sequence=9)
    put(partition, ahead)
    return ahead.error


def test_retry_in_the_same_append_as_its_original(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        twice = [batch(b"a", producer=5, sequence=0) for _ in range(2)]
        following = batch(b"b", producer=5, sequence=1)
        assert put(partition, twice[0], twice[1], following) == [0, 0, 1]
        assert len(records(partition)) == 2


def test_oldest_of_five_batches_in_flight_is_known(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        for n in range(7):
            put(partition, batch(b"x", producer=1, sequence=n))
        known, forgotten = batch(b"x", producer=1, sequence=2), batch(b"x", producer=1, sequence=1)
        assert put(partition, known) == [2]
        put(partition, forgotten)
        assert forgotten.error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_more_producers_than_the_first_table_holds(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=3000) as world:
        one, other = world.partition(0), world.partition(1)
        for producer in range(100):
            put(one if producer % 2 else other, batch(b"x", producer=producer, sequence=0))
        for producer in range(100):
            assert put(other, batch(b"x", producer=producer, sequence=0)) == [producer]


def test_sequences_wrap(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        put(partition, batch(b"a", b"b", producer=1, sequence=0x7FFFFFFE))
        after = batch(b"c", producer=1, sequence=0)
        assert (put(partition, after), after.error) == ([2], errors.NONE)


def test_recovery_finds_the_state_of_the_slot(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=1000, index_interval_bytes=200) as world:
        partition = world.partition()
        for n in range(40):
            put(partition, batch(b"v" * 60, producer=n % 3, sequence=n // 3, timestamp=NOW + n))
        state = partition.state()
        found = recovery.recover(partition.directory, LogConfig.resolve(world.config))
        assert (found.leo, found.active_base, found.active_size) == (state.leo, state.active_base, state.active_size)
        assert (found.index_entries, found.time_entries) == (state.index_entries, state.time_entries)
        assert (found.max_timestamp, found.max_timestamp_offset) == (state.max_timestamp, state.max_timestamp_offset)
        assert found.index_pending == state.index_pending
        last = {pid: entry.last.last_seq for pid, entry in found.producers.items() if entry.last}
        assert last == {0: 13, 1: 12, 2: 12}


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_apache_kafka_accepts_the_files(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=2000, index_interval_bytes=100) as world:
        partition = world.partition()
        for n in range(60):
            put(partition, batch(b"v" * 80, b"", producer=7, sequence=2 * n, timestamp=NOW + n * 1000))
        kinds = (".log", ".index", ".timeindex")
        files = sorted(str(path) for path in (tmp_path / "t-0").iterdir() if path.suffix in kinds)
        command = ["java", "-cp", str(jars("3.9.1") / "*"), "kafka.tools.DumpLogSegments"]
        logs = ",".join(path for path in files if path.endswith(".log"))
        deep = subprocess.run([*command, "--deep-iteration", "--files", logs], capture_output=True, text=True)
        assert deep.stdout.count("isvalid: true") == 60
        indexes = ",".join(path for path in files if path.endswith("index"))
        sane = subprocess.run([*command, "--index-sanity-check", "--files", indexes], capture_output=True, text=True)
        assert "Mismatches" not in sane.stdout + sane.stderr
        assert sane.stdout.count("passed sanity check") == len(indexes.split(","))


def test_read_below_the_log_start_is_an_error(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=300) as world:
        partition, slow = world.partition(), world.partition(1)
        for _ in range(10):
            put(partition, batch(b"x" * 100))
        stale = slow.slot.read()
        with partition.locked() as values:
            trim.advance(partition, values, 9)
        with pytest.raises(FileNotFoundError):
            read.fetch(slow, stale, 0, stale[slots.F_HW], 1 << 20)


def test_failed_roll_leaves_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty segment in the middle of the log would end every reader there."""
    with live(tmp_path, segment_bytes=1000) as world:
        partition = world.partition()
        put(partition, batch(b"a" * 700))
        opened = os.open

        def full(path: str, flags: int, mode: int = 0o777, **kwargs: object) -> int:
            if str(path).endswith("1.index") and flags & os.O_CREAT:
                raise OSError(errno.ENOSPC, "full")
            return opened(path, flags, mode, **kwargs)  # type: ignore[arg-type]  # as os.open

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            refused = batch(b"b" * 700)
            put(partition, refused)
            assert refused.error == errors.KAFKA_STORAGE_ERROR
        for n in range(4):
            put(partition, batch(bytes([n]) * 60))
        assert [len(value) for _, value in records(world.partition(1))] == [700, 60, 60, 60, 60]
        assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == [
            names.offset_name(0) + ".log",
            names.offset_name(partition.state().active_base) + ".log",
        ]


def test_a_producer_table_that_cannot_grow_is_repaired_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log end was published, the producers were not: without a repair a retry would be appended twice."""
    with live(tmp_path) as world:
        partition = world.partition()

        def no_memory(*_: object) -> int:
            raise OSError(errno.ENOMEM, "no memory")

        with monkeypatch.context() as patch:
            patch.setattr(type(partition.producers), "apply", no_memory)
            put(partition, batch(b"a", producer=7, sequence=0))
        (base,) = put(partition, batch(b"a", producer=7, sequence=0))
        assert base == 0
        assert records(partition) == [(0, b"a")]


def test_failed_repair_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path) as world:
        partition = world.partition()
        partition.slot.dirty = 1
        with monkeypatch.context() as patch:
            patch.setattr(repair, "repair", lambda *_: 1 // 0)
            with pytest.raises(Unrepaired):
                partition.acquire()
        assert put(partition, batch(b"a")) == [0]


def test_reader_with_an_old_view_creates_no_files(tmp_path: Path) -> None:
    """Retention, or deletion and creation of the topic, may have happened before it opens the file."""
    with live(tmp_path, segment_bytes=300) as world:
        writer, reader = world.partition(0), world.partition(1)
        put(writer, batch(b"a" * 100))
        old = reader.slot.read()
        for _ in range(6):
            put(writer, batch(b"a" * 100))
        with writer.locked() as values:
            trim.advance(writer, values, values[slots.F_LEO] - 1)
        before = sorted(os.listdir(tmp_path / "t-0"))
        with pytest.raises(FileNotFoundError):
            read.fetch(reader, old, 0, 1, 1000)
        assert sorted(os.listdir(tmp_path / "t-0")) == before


def test_files_of_a_deleted_topic_of_the_same_name_are_not_used(tmp_path: Path) -> None:
    with live(tmp_path) as world:
        reader = world.partition(1)
        put(world.partition(0), batch(b"secret of another topic"))
        old = reader.slot.read()
        reader.slot.publish(SlotState(incarnation=2, state=slots.LEADER))
        with pytest.raises(FileNotFoundError):
            read.fetch(reader, old, 0, 1, 1000)


def test_reading_through_many_segments_holds_few_files(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=200) as world:
        partition = world.partition()
        for n in range(60):
            put(partition, batch(b"%100d" % n))
        before = len(os.listdir("/proc/self/fd"))
        assert [offset for offset, _ in records(partition, limit=1)] == list(range(60))
        assert len(os.listdir("/proc/self/fd")) - before <= 10


def test_idle_readers_close_deleted_segments(tmp_path: Path) -> None:
    with live(tmp_path, segment_bytes=200) as world:
        log = world.log(1)
        reader, writer = log.get("t", 0), world.partition(0)
        assert reader is not None
        for n in range(5):
            put(writer, batch(b"%100d" % n))
        assert len(records(reader)) == 5

        def held() -> int:
            paths = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
            return sum(".log.deleted" in path for path in paths)

        with writer.locked() as values:
            trim.advance(writer, values, 3)
        writer.close_files()
        assert held()
        log.sweep()
        assert not held()
