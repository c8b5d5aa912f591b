"""The follower's log has the leader's bytes, and the state derived from them is right."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.ipc import slots
from odradek.storage.files import checkpoints, names
from odradek.storage.log import append_as_follower, control_batch, roll, transactions, truncate
from odradek.storage.log.partition import Partition
from odradek.storage.segment import fetched_batches
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.tools import check

from .. import logs
from ..compaction.compacting import consume
from ..live import NOW, Live, batch, live, put, records
from ..test_death import _deaths, _dies_at
from .following import faults, follower, histories, receive, sent, stored
from .test_append_and_read import broken

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def epochs_of(world: Live) -> tuple[tuple[int, int], ...]:
    return tuple((entry.epoch, entry.start_offset) for entry in EpochCache.read(world.root / "t-0").entries)


# --- what comes out is what a leader has


@pytest.mark.slow
@given(histories(), st.lists(st.integers(1, 3000), min_size=1, max_size=40), st.sampled_from([300, 900, 1 << 20]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_follower_log_equals_the_leaders(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], sizes: list[int], segment: int
) -> None:
    """With any division of the bytes into responses; a recovery finds the state of the slot."""
    data = b"".join(batches)
    root = tmp_path_factory.mktemp("p")
    with follower(root, segment_bytes=segment, index_interval_bytes=100, cleanup_policy="compact") as world:
        partition, reader = world.partition(0), world.partition(1)
        checkpoints.write_offsets(root, checkpoints.CLEANER, {("t", 0): 1 << 40})  # gaps are no faults
        at, turn = 0, 0
        while at < len(data):
            before = stored(reader)
            receive(partition, data[at : at + 3000 + sizes[turn % len(sizes)]])
            at = len(stored(reader))
            assert at > len(before)
            turn += 1
        assert stored(reader) == data
        assert not differences_but_gaps(world)
        assert reader.state().hw == reader.state().leo
        aborted = transactions.aborted_between(reader, reader.slot.read(), 0, 1 << 40)
        assert len(aborted) == reader.state().aborted


def differences_but_gaps(world: Live) -> list[str]:
    return [one for one in faults(world) if "are missing" not in one and "records, but offsets" not in one]


def test_producer_state_equals_that_of_our_leader(tmp_path: Path) -> None:
    """Producers and transactions equal the leader's, so that the follower may lead at any time."""
    with live(tmp_path / "leader", **SMALL) as there, follower(tmp_path / "follower", **SMALL) as here:
        leader, partition = there.partition(), here.partition()
        for n in range(8):
            put(leader, batch(b"%d" % n * 30, producer=3, sequence=n))
        for n, commit in enumerate((False, True, False)):
            one = batch(b"t", producer=9, sequence=n)
            one.transactional = True
            one.view[22] |= 0x10
            data = bytearray(logs.batch(0, attributes=0x10, producer=(9, 0, n), timestamp=NOW))
            one.view = memoryview(data)
            put(leader, one)
            if n < 2:
                assert control_batch.write_marker(leader, 9, 0, 1, commit, NOW) == 0
        receive(partition, stored(leader))
        ours, theirs = partition.slot.read(), leader.slot.read()
        assert partition.state().unstable == leader.state().unstable == 12
        found = transactions.aborted_between(here.partition(1), ours, 0, 99)
        assert found == transactions.aborted_between(leader, theirs, 0, 99) == [(9, 8)]
        assert not faults(here)
        partition.slot.update(state=slots.LEADER)
        again, following = batch(b"7" * 30, producer=3, sequence=7), batch(b"8", producer=3, sequence=8)
        assert put(partition, again, following) == [7, 13]


# --- high watermark and log start


def test_high_watermark_is_the_leaders_up_to_the_log_end(tmp_path: Path) -> None:
    with follower(tmp_path) as world:
        partition = world.partition()
        assert receive(partition, sent(0, 5), hw=3) == 5
        assert partition.state().hw == 3
        sequence = partition.slot.sequence
        receive(partition, b"", hw=3)
        assert partition.slot.sequence == sequence  # no process is woken without a reason
        receive(partition, b"", hw=1)
        assert partition.state().hw == 3
        receive(partition, b"", hw=9)
        assert partition.state().hw == 5
        receive(partition, sent(5), hw=2)  # a new leader without a fetch of its followers yet
        assert (partition.state().hw, partition.state().leo) == (5, 6)


def test_the_log_start_follows_the_leaders_but_not_past_the_end(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, sent(0, 20), log_start=7)
        state = partition.state()
        assert state.log_start == 7
        assert partition.bases(state.active_base, state.generation)[0] == 5
        receive(partition, b"", log_start=4)
        assert partition.state().log_start == 7
        receive(partition, b"", log_start=99)
        assert partition.state().log_start == 20
        assert not list(check.check(world.root / "t-0"))


def test_an_empty_log_that_begins_within_the_first_batch(tmp_path: Path) -> None:
    """DeleteRecords has moved the leader's log start there: the batch comes whole."""
    with follower(tmp_path) as world:
        partition = world.partition()
        with partition.locked() as values:
            truncate.restart(partition, values, 12)
        assert receive(partition, logs.batch(10, 5, timestamp=NOW) + sent(15), log_start=12) == 16
        assert partition.state().log_start == 12
        assert [offset for offset, _ in records(world.partition(1))] == [12, 13, 14, 15]
        assert not faults(world)


# --- what is refused


def test_unordered_offsets_are_refused_after_valid_batches(tmp_path: Path) -> None:
    with follower(tmp_path) as world:
        partition = world.partition()
        receive(partition, sent(0, 5))
        with pytest.raises(fetched_batches.MisplacedBatch) as caught:
            receive(partition, sent(5, 2) + logs.batch(4, 3))
        assert (caught.value.offset, caught.value.last, caught.value.leo) == (4, 6, 7)
        assert partition.state().leo == 7
        with pytest.raises(fetched_batches.MisplacedBatch):
            receive(partition, sent(6))
        assert stored(world.partition(1)) == sent(0, 7)
        assert not faults(world)


@pytest.mark.parametrize("at", [30, 70, 13 + 8, 23, 8])
def test_corrupt_batch_is_refused_after_valid_batches(tmp_path: Path, at: int) -> None:
    with follower(tmp_path) as world:
        partition, bad = world.partition(), bytearray(sent(3))
        bad[at] ^= 0x81
        with pytest.raises(fetched_batches.CorruptBatch):
            receive(partition, sent(0, 3) + bytes(bad) + sent(4))
        assert partition.state().leo == 3
        assert receive(partition, sent(3, 2)) == 5
        assert stored(world.partition(1)) == sent(0, 5)
        assert not faults(world)


@pytest.mark.slow
def test_incomplete_last_batch_is_ignored(tmp_path: Path) -> None:
    data = sent(0, 2)
    for size in range(len(data) // 2, len(data)):
        with follower(tmp_path / str(size)) as world:
            assert receive(world.partition(), data[:size]) == 1


def test_batches_are_scanned_again_if_the_log_end_differs(tmp_path: Path) -> None:
    with follower(tmp_path) as world:
        partition, data = world.partition(), memoryview(sent(2, 2))
        before = fetched_batches.find(data, 0)
        assert (before.leo, before.end, before.last_epoch, len(before.batches)) == (0, 4, 0, 2)
        receive(partition, sent(0, 3))
        with partition.locked() as values, pytest.raises(fetched_batches.MisplacedBatch):
            append_as_follower.append(partition, values, data, 0, 0, NOW, before)
        assert partition.state().leo == 3
        with partition.locked() as values:
            data = memoryview(sent(3, 2))
            append_as_follower.append(partition, values, data, 0, 0, NOW, fetched_batches.find(data, 3))
        assert stored(world.partition(1)) == sent(0, 5)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_refused_and_logged(tmp_path: Path, magic: int) -> None:
    with follower(tmp_path) as world, pytest.raises(fetched_batches.OldFormat, match=f"format {magic}"):
        receive(world.partition(), logs.message(0, magic))
    with follower(tmp_path) as world, pytest.raises(fetched_batches.CorruptBatch, match="magic 77"):
        receive(world.partition(), sent(0)[:16] + b"M" + sent(0)[17:])


# --- compacted leaders


def test_gaps_and_emptied_batches(tmp_path: Path) -> None:
    """Compaction takes records, leaves a producer's last batch without any, and empties markers."""
    last = bytearray(logs.batch(9, 0, producer=(4, 0, 6)))
    last[23:27] = (2).to_bytes(4, "big")  # it had three records
    emptied = _checked(last)
    marker = _checked(bytearray(logs.batch(20, 0, attributes=0x30, producer=(5, 0, -1))))
    marker_delta = bytearray(marker)
    marker_delta[23:27] = (0).to_bytes(4, "big")
    data = sent(3) + emptied + _checked(marker_delta) + sent(30, 2)
    with follower(tmp_path, cleanup_policy="compact") as world:
        partition = world.partition()
        assert receive(partition, data) == 32
        partition.slot.update(state=slots.LEADER)
        assert put(partition, batch(b"k", producer=4, sequence=9)) == [32]
        assert stored(world.partition(1))[: len(data)] == data


def _checked(data: bytearray) -> bytes:
    from crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("before", [0, 3])
def test_a_gap_wider_than_a_segment_may_be(tmp_path: Path, before: int) -> None:
    far = 5 << 31
    with follower(tmp_path, cleanup_policy="compact") as world:
        partition = world.partition()
        receive(partition, sent(0, before))
        assert receive(partition, sent(far, 2)) == far + 2
        state = partition.state()
        assert state.active_base == far
        assert stored(world.partition(1)) == sent(0, before) + sent(far, 2)
        found = [one.offset for one in consume(world.partition(2))]
        assert found == [*range(before), far, far + 1]
        assert receive(partition, sent(far + 2, 2)) == far + 4


# --- leader epochs


def test_epochs_that_begin_in_the_data(tmp_path: Path) -> None:
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        data = b"".join(logs.batch(n, epoch=epoch) for n, epoch in enumerate([0, 0, 2, 2, 2, 2, 2, 5, 5, 6]))
        receive(partition, data)
        assert epochs_of(world) == ((0, 0), (2, 2), (5, 7), (6, 9))
        assert partition.state().latest_epoch == 6
        receive(partition, sent(10, epoch=6) + sent(11, epoch=7))
        assert epochs_of(world)[-1] == (7, 11)
        assert not faults(world)


def test_epoch_led_without_a_record_is_forgotten(tmp_path: Path) -> None:
    """It is forgotten, and the epoch that continues keeps its start offset."""
    with follower(tmp_path) as world:
        partition = world.partition()
        receive(partition, sent(0, 5, epoch=3))
        with partition.locked() as values:
            roll.record_epoch(partition, 8, 5)
            values[slots.F_LATEST_EPOCH] = 8
            partition.slot.publish(values)
        receive(partition, sent(5, epoch=3))
        assert epochs_of(world) == ((3, 0),)
        assert not faults(world)


@pytest.mark.parametrize("text", ["rubbish\n", "0\n1\n7", "0\n0\n", "", None])
@pytest.mark.parametrize("how", ["append", "receive", "cut"])
def test_epochs_whose_file_is_broken_are_built_again(tmp_path: Path, text: str | None, how: str) -> None:
    """A leader that forgot all epochs but the last cannot tell a follower where their logs diverge below that one; the
    next recovery trusts the file. What lies behind the log's end, as a failed write leaves it, is of no epoch.
    """
    with follower(tmp_path, **SMALL) as world:
        partition = world.partition()
        receive(partition, b"".join(logs.batch(n, epoch=epoch) for n, epoch in enumerate([0, 0, 2, 2, 2, 5, 5, 6])))
        assert partition.state().active_base > 2
        file = world.root / "t-0" / "leader-epoch-checkpoint"
        file.unlink() if text is None else file.write_text(text)
        with names.segment_path(partition.directory, partition.state().active_base).open("ab") as segment:
            segment.write(logs.batch(8, epoch=7))
        if how == "append":
            partition.slot.update(state=slots.LEADER, leader_epoch=9)
            put(partition, batch(b"x"))
        elif how == "receive":
            receive(partition, sent(8, epoch=9))
        else:
            with partition.locked() as values:
                truncate.truncate(partition, values, 7)
        assert epochs_of(world) == ((0, 0), (2, 2), (5, 5), *([] if how == "cut" else [(6, 7), (9, 8)]))
        assert partition.state().latest_epoch == epochs_of(world)[-1][0]


def test_log_without_epochs_is_not_scanned_for_them(tmp_path: Path) -> None:
    """A new log has no file, and neither has one whose batches are older than epochs."""
    with follower(tmp_path) as world:
        partition = world.partition()
        receive(partition, sent(0, 3, epoch=-1))
        names.segment_path(partition.directory, 0).unlink()
        assert roll.read_epochs(partition).entries == ()


# --- disks and deaths


@pytest.mark.slow
def test_death_at_every_step(tmp_path: Path) -> None:
    """Two segments begin, epochs, an aborted transaction and another that stays open, and the log start moves."""
    first = sent(0, 4)
    more = (
        sent(4, 2, epoch=1)
        + logs.batch(6, attributes=0x10, producer=(7, 0, 0), epoch=1, timestamp=NOW)
        + logs.batch(7, attributes=0x10, producer=(8, 0, 0), epoch=2, timestamp=NOW)
        + sent(8, 3, epoch=2, producer=(9, 0, 0))
        + logs.marker(11, 7, 0, commit=False)[:12] + (3).to_bytes(4, "big") + logs.marker(11, 7, 0, commit=False)[16:]
        + sent(12, 2, epoch=4)
    )  # fmt: skip

    def work(partition: Partition) -> None:
        receive(partition, more, log_start=6)

    for step, world in _deaths(tmp_path, **SMALL):
        world.partition().slot.update(state=slots.FOLLOWER)
        partition = world.partition()
        receive(partition, first)
        died = _dies_at(world, step, work)
        with world.partition(1).locked() as values:
            leo = values[slots.F_LEO]
        assert not faults(world), f"step {step}"
        assert stored(world.partition(2)) in first + more
        receive(partition, _from(first + more, leo), log_start=6)
        state = partition.state()
        assert (state.leo, state.hw, state.log_start, state.unstable, state.aborted) == (14, 14, 6, 7, 1)
        assert epochs_of(world)[-4:] == ((1, 4), (2, 7), (3, 11), (4, 12)), f"step {step}"
        assert not faults(world), f"step {step}"
        if not died:
            assert step > 20
            return
    pytest.fail("the work never came to its end")


def _from(data: bytes, offset: int) -> bytes:
    """What a leader sends a follower whose log ends at `offset`."""
    at = 0
    while at < len(data) and int.from_bytes(data[at : at + 8], "big") < offset:
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
    return data[at:]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with follower(tmp_path, index_interval_bytes=1) as world:
        partition = world.partition()
        receive(partition, sent(0, 3))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", broken(number))
            with pytest.raises(OSError):
                receive(partition, sent(3, 3))
        if number == errno.EIO:
            assert partition.state().state == slots.OFFLINE
            assert partition.owner.shared.failed_dirs() == [0]
            return
        assert receive(partition, sent(3, 2)) == 5
        assert not faults(world)
