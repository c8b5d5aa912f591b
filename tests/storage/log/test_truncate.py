"""Truncations of a follower's log: the kept part is unchanged, with a death at any moment."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.storage.compaction import compaction
from odradek.storage.files import checkpoints, names
from odradek.storage.log import transactions, truncate
from odradek.storage.log.partition import TRUNCATING, LockNotAvailable, Partition
from odradek.storage.recovery import recovery
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check

from ...harness.process import die_with_parent, turns
from .. import logs
from ..compaction.compaction_world import World
from ..live import NOW, Live, batch, put
from ..test_death import _deaths, _dies_at
from .following import differences, faults, follower, histories, receive, sent, stored
from .test_append_and_read import broken

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def cut(partition: Partition, offset: int) -> None:
    with partition.locked() as values:
        truncate.truncate(partition, values, offset)


def start_again_at(partition: Partition, offset: int) -> None:
    with partition.locked() as values:
        truncate.restart(partition, values, offset)


def ends(data: bytes) -> list[tuple[int, int]]:
    """(last offset, position behind) of each batch."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        last = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big")
        found.append((last, at + size))
        at += size
    return found


def beginning(data: bytes, offset: int) -> bytes:
    """The batches whose last offset is below `offset`."""
    return data[: max((end for last, end in ends(data) if last < offset), default=0)]


def but_gaps(found: list[str]) -> list[str]:
    return [one for one in found if "are missing" not in one]


# --- what stays


@pytest.mark.slow
@given(histories(), st.lists(st.integers(0, 80), min_size=1, max_size=4), st.sampled_from([300, 900, 1 << 20]))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncation_keeps_only_batches_below_the_offset(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], offsets: list[int], segment: int
) -> None:
    """The derived state equals that of a recovery; then the log continues normally."""
    data, root = b"".join(batches), tmp_path_factory.mktemp("p")
    with follower(root, segment_bytes=segment, index_interval_bytes=100, cleanup_policy="compact") as world:
        partition, reader = world.partition(0), world.partition(1)
        checkpoints.write_offsets(root, checkpoints.CLEANER, {("t", 0): 1 << 40})
        receive(partition, data)
        left = data
        for offset in offsets:
            leo, truncations = reader.state().leo, reader.state().truncations
            cut(partition, offset)
            left = beginning(left, offset)
            assert stored(reader) == left
            state = reader.state()
            assert state.leo <= min(leo, offset) or offset >= leo == state.leo
            assert state.hw == state.leo
            assert state.truncations == truncations + (offset < leo)
            assert not but_gaps(faults(world))
        receive(partition, data[len(left) :])
        assert stored(reader) == data
        assert not but_gaps(faults(world))


def test_log_ends_with_the_last_kept_batch(tmp_path: Path) -> None:
    with follower(tmp_path) as world:
        partition = world.partition()
        receive(partition, logs.batch(0, 5) + logs.batch(5, 5))
        cut(partition, 7)
        assert partition.state().leo == 5
        cut(partition, 5)
        assert partition.state().leo == 5
        with pytest.raises(ValueError, match="-1"):
            cut(partition, -1)


def test_high_watermark_is_lowered_only_if_above_the_log_end(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 20), hw=8)
        cut(partition, 12)
        assert (partition.state().hw, partition.state().leo) == (8, 12)
        cut(partition, 6)
        assert (partition.state().hw, partition.state().leo) == (6, 6)


def test_log_start_is_lowered_only_if_above_the_log_end(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 20), log_start=8)
        cut(partition, 12)
        assert partition.state().log_start == 8
        cut(partition, 7)
        assert (partition.state().log_start, partition.state().leo) == (7, 7)
        cut(partition, 2)  # below the first segment, which begins at 5: the log starts again there, as in Kafka
        assert (partition.state().log_start, partition.state().leo, partition.state().hw) == (2, 2, 2)
        assert receive(partition, sent(2, 3)) == 5
        assert not faults(world)


def test_the_recovery_point_and_the_state_are_kept(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 20))
        partition.slot.update(flushed=15, leader_epoch=4)
        cut(partition, 17)
        assert (partition.state().flushed, partition.state().state) == (15, slots.FOLLOWER)
        cut(partition, 12)
        assert (partition.state().flushed, partition.state().leader_epoch) == (12, 4)
        assert not partition.state().unflushed_since


def test_trailing_epochs_without_a_batch_are_forgotten(tmp_path: Path) -> None:
    """This broker led in epoch 9 without a record: the leader decides where epoch 0 ended."""
    with follower(tmp_path) as world:
        partition = world.partition()
        receive(partition, sent(0, 5))
        EpochCache([(0, 0), (9, 5)]).write(world.root / "t-0")
        partition.slot.update(latest_epoch=9)
        cut(partition, 5)
        assert EpochCache.read(world.root / "t-0").entries == ((0, 0),)
        assert (partition.state().latest_epoch, partition.state().leo, partition.state().truncations) == (0, 5, 0)


def test_truncation_forgets_producers_of_removed_batches(tmp_path: Path) -> None:
    """A retry of a batch that is gone is no duplicate; one of a batch that stays is."""
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, b"".join(logs.batch(n, producer=(4, 0, n), timestamp=NOW) for n in range(12)))
        cut(partition, 8)
        tables = [name for name in os.listdir("/dev/shm") if name.startswith(f"{world.prefix[1:]}producers-")]
        assert len(tables) == 1
        partition.slot.update(state=slots.LEADER)
        assert put(partition, batch(b"7", producer=4, sequence=7), batch(b"8", producer=4, sequence=8)) == [7, 8]


def test_truncation_clears_the_appenders_cache_of_producers(tmp_path: Path) -> None:
    """An earlier append of this process cached producers of the log before the truncation."""
    with follower(tmp_path) as world:
        partition = world.partition()
        partition.slot.update(state=slots.LEADER)
        put(partition, *(batch(b"x", producer=4, sequence=n) for n in range(4)))
        partition.slot.update(state=slots.FOLLOWER)
        cut(partition, 2)
        receive(partition, b"".join(logs.batch(n, producer=(5, 0, n - 2)) for n in (2, 3)))
        partition.slot.update(state=slots.LEADER)
        assert put(partition, batch(b"y", producer=4, sequence=2), batch(b"z", producer=5, sequence=2)) == [4, 5]


def test_sealed_files_are_replaced_and_never_cut(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 14))
        directory = world.root / "t-0"
        sealed = [path for base in (0, 5) for path in directory.glob(f"{base:020d}.*")]
        held = [(os.open(path, os.O_RDONLY), path.read_bytes()) for path in sealed]
        for offset in (8, 3):
            cut(partition, offset)
            assert stored(world.partition(1)) == sent(0, offset)
        for fd, data in held:
            assert os.pread(fd, 10_000, 0) == data
            os.close(fd)


def test_log_starts_again_at_another_offset(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        for offset in (100, 20, 0):
            start_again_at(partition, offset)
            state = partition.state()
            assert (state.log_start, state.leo, state.hw, state.state) == (offset, offset, offset, slots.FOLLOWER)
            assert EpochCache.read(world.root / "t-0").entries == ()
            assert not list((world.root / "t-0").glob("*.snapshot"))
            assert not faults(world)
            receive(partition, b"".join(logs.batch(offset + n, producer=(4, 0, n), epoch=3) for n in range(15)))
            assert stored(world.partition(1))[:8] == offset.to_bytes(8, "big")
            assert not faults(world)


def test_readers_wait_for_a_truncation(tmp_path: Path) -> None:
    """A look-up by name during the replacement could mix files of two logs."""
    with follower(tmp_path, **SMALL) as world:
        partition, reader = world.partition(), world.partition(1)
        receive(partition, sent(0, 20))
        values = reader.slot.read()
        with partition.locked():
            partition.slot.dirty = TRUNCATING
            with pytest.raises(FileNotFoundError):
                reader.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
        other = world.partition(2)
        with pytest.raises(FileNotFoundError):
            stored(other)  # finishes it, and has to look again
        assert stored(other) == sent(0, 20)


def test_a_running_compaction_is_aborted(tmp_path: Path) -> None:
    """At any step: its new segments never replace those of another log."""
    config = {"segment_bytes": 700, "index_interval_bytes": 100, "cleanup_policy": "compact", "delete_retention_ms": 0}
    data = b"".join(logs.batch(n, key=b"%d" % (n % 3), timestamp=NOW + n) for n in range(30))
    for step in range(1, 100):
        with follower(tmp_path / str(step), **config) as world:
            partition, reader = world.partition(0), world.partition(1)
            receive(partition, data)
            what = compaction.find_range(partition, 0, NOW)
            steps = compaction.Compaction(partition, what, compaction.DedupeBuffer(), NOW).steps()
            taken = [next(steps, None) for _ in range(step)]
            left = beginning(stored(reader), 13)
            cut(world.partition(2), 13)
            try:
                for _ in steps:
                    pass
            except compaction.CleaningAborted:
                pass
            assert stored(reader) == left
            assert not [name for name in os.listdir(world.root / "t-0") if name.endswith((".cleaned", ".swap"))]
            receive(partition, data[ends(data)[12][1] :])
            assert not but_gaps(faults(world))
            if taken and taken[-1] is None:
                assert step > 3
                return
    pytest.fail("the compaction never came to its end")


# --- disks


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    ("offset", "call"), [(17, "ftruncate"), (7, "pwrite"), (7, "replace"), (7, "rename"), (7, "fsync")]
)
def test_truncation_on_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, offset: int
) -> None:
    """In the active segment it only calls ftruncate; below that it builds the cut segment again."""
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 18))
        with monkeypatch.context() as patch:
            patch.setattr(os, call, broken(number))
            with pytest.raises(OSError):
                cut(partition, offset)
        if number == errno.EIO:
            assert partition.state().state == slots.OFFLINE
            assert partition.owner.shared.failed_dirs() == [0]
            return
        with world.partition(1).locked():
            pass
        left = stored(world.partition(2))
        assert sent(0, 18).startswith(left)
        assert left.startswith(sent(0, offset))
        cut(partition, offset)
        assert stored(world.partition(3)) == sent(0, offset)
        assert not faults(world)


def damage(world: Live, at: int) -> None:
    path = names.segment_path(world.root / "t-0", 0)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damage_in_what_stays_of_a_sealed_segment_takes_the_partition_offline(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 14))
        damage(world, 60)
        with pytest.raises(OSError, match="damaged"):
            cut(partition, 4)
        assert partition.state().state == slots.OFFLINE


@pytest.mark.parametrize("producer", [-1, 4])
def test_kept_part_of_the_active_segment_is_not_read(tmp_path: Path, producer: int) -> None:
    """A GiB takes seconds to read, while its leader and all others wait."""
    with follower(tmp_path, index_interval_bytes=100) as world:
        partition = world.partition()
        receive(partition, b"".join(logs.batch(n, producer=(producer, 0, n), timestamp=NOW + n) for n in range(40)))
        damage(world, 60)
        damage(world, 16)  # of the first batch: a read of it would not find magic 2
        cut(partition, 38)
        assert (partition.state().leo, partition.state().state) == (38, slots.FOLLOWER)
        assert receive(partition, logs.batch(38, producer=(producer, 0, 38), timestamp=NOW + 38)) == 39


@given(
    st.lists(st.sampled_from(["plain", "old", "new", "epoch", "begin", "commit"]), min_size=1, max_size=12),
    st.integers(0, 30),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_producers_after_a_truncation_equal_those_of_a_start(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], back: int
) -> None:
    """Also where the table lacks the earlier state: new producers and epochs, transactions, markers."""
    made, sequences, epochs = list[bytes](), {1: 0, 2: 0}, {1: 0, 2: 0}
    for n in range(20):
        made.append(logs.batch(n, producer=(1, 0, n), timestamp=NOW + n))
    sequences[1] = 20
    for offset, kind in enumerate(kinds, 20):
        producer = {"old": 1, "epoch": 1, "new": offset, "begin": 2, "commit": 2}.get(kind, -1)
        if kind == "commit":
            made.append(logs.marker(offset, 2, 0, commit=True))
            continue
        if kind == "epoch":
            epochs[1], sequences[1] = epochs[1] + 1, 0
        known = (producer, epochs.get(producer, 0), sequences.get(producer, 0))
        options: dict[str, Any] = {"producer": known} if producer > 0 else {}
        attributes = 0x10 if kind == "begin" else 0
        made.append(logs.batch(offset, timestamp=NOW + offset, attributes=attributes, **options))
        sequences[producer] = sequences.get(producer, 0) + 1
    with follower(tmp_path_factory.mktemp("p"), index_interval_bytes=300) as world:
        partition = world.partition()
        receive(partition, b"".join(made))
        cut(partition, max(0, len(made) - back))
        assert not faults(world)


# --- deaths


def _history() -> bytes:
    """Five segments with three epochs, an idempotent producer, an aborted and an open transaction."""
    marker = bytearray(logs.marker(9, 7, 0, commit=False))
    marker[12:16] = (1).to_bytes(4, "big")
    return (
        sent(0, 6)
        + logs.batch(6, attributes=0x10, producer=(7, 0, 0), epoch=1, timestamp=NOW)
        + logs.batch(7, 2, attributes=0x10, producer=(8, 0, 0), epoch=1, timestamp=NOW)
        + bytes(marker)
        + b"".join(logs.batch(n, producer=(9, 0, n - 10), epoch=2, timestamp=NOW + n) for n in range(10, 22))
    )


@pytest.mark.slow
@pytest.mark.parametrize("offset", [21, *(pytest.param(offset, marks=pytest.mark.long) for offset in (18, 8, 0))])
def test_death_at_every_step(tmp_path: Path, offset: int) -> None:
    data = _history()
    wanted = beginning(data, offset)

    def work(partition: Partition) -> None:
        cut(partition, offset)

    for step, world in _deaths(tmp_path, **SMALL):
        world.partition().slot.update(state=slots.FOLLOWER)
        receive(world.partition(), data)
        died = _dies_at(world, step, work)
        if died and step % 2:
            _restart(world, tmp_path / "copy", data, wanted)
        with world.partition(1).locked() as values:
            assert values[slots.F_STATE] == slots.FOLLOWER
        left = stored(world.partition(2))
        assert data.startswith(left) and left.startswith(wanted), f"step {step}"
        assert not faults(world), f"step {step}"
        partition = world.partition(3)
        cut(partition, offset)
        assert stored(world.partition(4)) == wanted, f"step {step}"
        receive(partition, data[len(wanted) :])
        assert stored(world.partition(5)) == data
        assert not faults(world), f"step {step}"
        if not died:
            assert step > 10
            return
    pytest.fail("the work never came to its end")


def _restart(world: Live, copy: Path, data: bytes, wanted: bytes) -> None:
    """The same directory after a kill of the whole broker."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(world.root / "t-0", copy / "t-0")
    recovery.recover(copy / "t-0", world.partition(5).config)
    left = b"".join(path.read_bytes() for path in sorted((copy / "t-0").glob("*.log")))
    assert data.startswith(left) and left.startswith(wanted)
    assert [str(fault) for fault in check.check(copy / "t-0", deep=True)] == []


@pytest.mark.slow
@pytest.mark.parametrize("offset", [40, 0])
def test_death_at_every_step_of_starting_again(tmp_path: Path, offset: int) -> None:
    data = _history()

    def work(partition: Partition) -> None:
        start_again_at(partition, offset)

    for step, world in _deaths(tmp_path, **SMALL):
        world.partition().slot.update(state=slots.FOLLOWER)
        receive(world.partition(), data)
        died = _dies_at(world, step, work)
        if died and step % 2:
            _restart(world, tmp_path / "copy", data, b"")
        with world.partition(1).locked():
            pass
        assert data.startswith(stored(world.partition(2))), f"step {step}"
        assert not faults(world), f"step {step}"
        partition = world.partition(3)
        start_again_at(partition, offset)
        receive(partition, sent(offset, 5))
        assert stored(world.partition(4)) == sent(offset, 5), f"step {step}"
        assert not faults(world), f"step {step}"
        if not died:
            assert step > 10
            return
    pytest.fail("the work never came to its end")


def test_producer_timestamp_is_of_its_last_kept_marker(tmp_path: Path) -> None:
    data = logs.batch(0, producer=(1, 0, 0), timestamp=NOW) + logs.marker(1, 1, 0, commit=True)
    with follower(tmp_path) as world:
        partition = world.partition(1)
        receive(partition, data + logs.batch(2, producer=(1, 0, 1), timestamp=NOW + 2))
        cut(partition, 2)
        assert differences(world) == []


def test_producers_after_a_failed_truncation_and_a_repair(tmp_path: Path) -> None:
    """The repairing process creates the next generation of their table again, under the same name."""
    data = b"".join(logs.batch(n, epoch=n // 2, producer=(3, 0, n), timestamp=NOW + n) for n in range(8))
    half = ends(data)[3][1]
    with follower(tmp_path) as world:
        partition = world.partition(1)
        receive(partition, data)
        blocked = tmp_path / "t-0" / "leader-epoch-checkpoint.tmp"
        blocked.mkdir()
        with pytest.raises(OSError, match=blocked.name):
            cut(partition, 4)
        blocked.rmdir()
        with world.partition(2).locked():
            pass
        receive(partition, data[half:])
        assert differences(world) == []


@pytest.mark.parametrize("offset", [3, 9])
def test_exception_in_a_truncation_leaves_no_table_generation_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """The repairing process publishes the same generation: in sealed segments and in the active one."""

    def faulty(*_: object) -> int:
        raise MemoryError

    with follower(tmp_path, segment_bytes=700) as world:
        first, second = world.partition(), world.partition(1)
        receive(first, b"".join(sent(n, producer=(5, 0, n)) for n in range(10)))
        monkeypatch.setattr(transactions, "count", faulty)
        with pytest.raises(MemoryError):
            cut(first, offset)
        monkeypatch.undo()
        cut(second, offset)
        receive(second, sent(offset, producer=(5, 0, offset)))
        assert second.state().pstate_gen == 2
        for one in (first, second):
            with one.locked() as values:
                table = one.producers.table(values[slots.F_PSTATE_GEN])
                assert table is not None
                assert table.last_sequence(table.find(5)) == offset


@pytest.mark.slow
def test_follower_killed_at_random(tmp_path: Path) -> None:
    """A replicator copies and truncates until it is killed; the log is always a prefix of the leader's."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    data = b"".join(logs.batch(n, epoch=n // 40, producer=(3, 0, n), timestamp=NOW + n) for n in range(300))
    edges = [end for _, end in ends(data)]
    with follower(tmp_path, segment_bytes=2000, index_interval_bytes=300) as world:

        def replicate_for_ever(mine: random.Random) -> None:
            partition = world.partition(1)
            while True:
                try:
                    leo = partition.state().leo
                    if leo == 300 or mine.random() < 0.3:
                        cut(partition, mine.randrange(leo + 1))
                    else:
                        at = edges[leo - 1] if leo else 0
                        receive(partition, data[at : at + mine.randrange(100, 6000)])
                except LockNotAvailable:
                    continue

        for turn in turns(25, lambda: world.partition().state().truncations > 10):
            pid = os.fork()
            if not pid:
                die_with_parent()
                try:
                    replicate_for_ever(random.Random(seed + turn))
                finally:
                    os._exit(1)
            time.sleep(rng.uniform(0.002, 0.1) if turn else 0)  # first before it has done anything
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
            with world.partition(2).locked() as values:
                leo = values[slots.F_LEO]
            assert stored(world.partition(3)) == (data[: edges[leo - 1]] if leo else b"")
            assert not faults(world)
        assert world.partition().state().truncations > 10


def test_transaction_begun_without_sequences_stays_open(tmp_path: Path) -> None:
    """The truncation removes its producer's first batch with sequences."""
    world = World(tmp_path, cleanup_policy="compact", delete_retention_ms=0)
    try:
        producer = world.producers[0]
        world.send_as_coordinator([(b"a", b"1", ())], producer)
        world.roll()
        world.send([(b"a", b"2", ())], 0, producer, inside=True)
        with world.partition.locked() as values:
            values[slots.F_STATE] = slots.FOLLOWER
            truncate.truncate(world.partition, values, 1)
        state = world.partition.state()
        assert (state.leo, state.unstable) == (1, 0)
    finally:
        world.close()


def test_transaction_whose_marker_is_cut_off_is_open_though_its_producer_was_forgotten(tmp_path: Path) -> None:
    """The marker is of a later epoch: nothing of its producer is left in the table but that, and others need room."""
    with follower(tmp_path, producers_max=1) as world:
        partition = world.partition()
        begun = logs.batch(0, attributes=0x10, producer=(4, 0, 0), timestamp=NOW)
        receive(partition, begun + logs.marker(1, 4, 1, commit=False))
        receive(partition, sent(2, 30, producer=(5, 0, -1)))
        for number in range(30):
            receive(partition, sent(32 + number, producer=(100 + number, 0, 0)))
        with partition.locked() as values:
            table = partition.producers.table(values[slots.F_PSTATE_GEN])
            assert table is not None and table.find(4) < 0
        cut(partition, 1)
        assert partition.state().unstable == 0
        assert faults(world) == []


def test_transaction_whose_marker_is_cut_off_is_open_in_a_partition_without_producers(tmp_path: Path) -> None:
    """All producers have expired and the broker has started again: the partition has no table."""
    with follower(tmp_path) as world:
        partition = world.partition()
        begun = logs.batch(0, attributes=0x10, producer=(4, 0, 0), timestamp=NOW)
        receive(partition, begun + logs.marker(1, 4, 0, commit=True))
        with partition.locked() as values:
            values[slots.F_PSTATE_GEN] = 0
            partition.slot.publish(values)
        cut(partition, 1)
        assert partition.state().unstable == 0
        receive(partition, logs.marker(1, 4, 1, commit=False))
        assert partition.state().aborted == 1
        assert faults(world) == []
