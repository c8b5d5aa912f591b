"""The janitor's log cleaner: which log is next, its checkpoint, its pace, and what it does about trouble."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.janitor import log_cleaner
from odradek.broker.janitor.cleaner_offsets import CleanerOffsets
from odradek.broker.janitor.log_cleaner import Cleaner
from odradek.broker.process.checkpoint_lock import CheckpointLocks, FormerLines
from odradek.ipc import slots
from odradek.ipc.locks import PartitionLocks
from odradek.protocol.records import batch_v2
from odradek.storage.compaction import compaction
from odradek.storage.files import checkpoints
from odradek.storage.files.durable import FILES
from odradek.storage.log import append_as_follower
from odradek.storage.log.append import Batch, append
from odradek.storage.log.partition import Partition
from odradek.storage.tools.check import check

from ..partitions import Bench, now_ms

Maker = Callable[..., Bench]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    monkeypatch.setattr(log_cleaner, "_be_nice", lambda: None)
    made: list[Bench] = []

    def make(count: int = 1, **arguments: Any) -> Bench:
        made.append(Bench(tmp_path, count, cleanup_policy="compact", segment_bytes=1000, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def cleaner(bench: Bench, met: list[tuple[str, OSError]] | None = None, **config: Any) -> Cleaner:
    """`met` takes what the disk refuses, of which there must be nothing without it."""
    settings = bench.config
    for name, value in config.items():
        settings = settings.with_value(name.replace("_", "."), value)

    def hear(partition: Partition, error: OSError) -> None:
        assert met is not None, f"{partition!r}: {error}"
        met.append((repr(partition), error))

    return Cleaner(settings, lambda: bench.partitions, CheckpointLocks(bench.data.parent), hear)


def write(partition: Partition, count: int, keys: int = 3) -> None:
    for n in range(count):
        data = batch_v2.build([(0, now_ms(), b"%d" % (n % keys), b"x" * 100, ())])
        with partition.locked() as values:
            append(partition, values, [Batch(memoryview(bytearray(data)), 1, now_ms())], now_ms())


def until_idle(one: Cleaner, backoff: float = 15000.0) -> int:
    """Steps until it has nothing to do; how many."""
    for count in range(10_000):
        if one.step() == backoff:
            return count
    raise AssertionError("never idle")


def checkpoint(bench: Bench) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(bench.data, checkpoints.CLEANER)


def test_the_filthiest_first_and_all_that_are_due(bench: Maker) -> None:
    log = bench(count=3)
    for index, count in enumerate((30, 60, 1)):
        write(log.partition(index), count)
    one = cleaner(log)
    until_idle(one)
    upto = checkpoint(log)
    assert set(upto) == {("t", 0), ("t", 1)}
    write(log.partition(0), 20)
    write(log.partition(1), 100)
    one.step()
    assert repr(one.partition) == "t-1"
    until_idle(one)
    assert all(checkpoint(log)[key] > upto[key] for key in upto)
    assert until_idle(one) == 0


def test_replicas_that_are_always_behind_hold_up_no_round_and_one_that_stays_behind_does(bench: Maker) -> None:
    log = bench()
    partition = log.partition()
    write(partition, 30)
    leo = partition.state().leo
    partition.slot.update(hw_quorum=2, isr_count=2, hw=leo - 1)
    one = cleaner(log)
    until_idle(one)
    write(partition, 1)
    until_idle(one)
    assert ("t", 0) not in checkpoint(log)
    partition.slot.update(hw=leo)
    assert partition.state().leo > leo
    until_idle(one)
    assert checkpoint(log)[("t", 0)] > 0


def test_another_janitor_goes_on_from_the_checkpoint(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    until_idle(cleaner(log))
    upto = checkpoint(log)
    assert until_idle(cleaner(log)) == 0
    assert checkpoint(log) == upto


def test_it_is_throttled_and_gives_up_cleanly(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 3000, keys=3000)
    one = cleaner(log, log_cleaner_io_max_bytes_per_second=1e3)
    one.step()
    assert 100_000 < one.step() < 400_000  # 256 KiB at 1 kB a second, less what the reading took
    for _ in range(20):
        one.step()
        if list((log.data / "t-0").glob("*.cleaned")):
            break
    one.close()
    assert one.partition is None
    assert not list((log.data / "t-0").glob("*.cleaned"))


def test_a_backoff_of_nothing_is_a_short_pause(bench: Maker) -> None:
    one = cleaner(bench(), log_cleaner_backoff_ms=0)
    assert one.step() == one.backoff_ms > 0


def test_not_at_all(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    assert cleaner(log, log_cleaner_enable=False).step() == 15000.0
    assert checkpoint(log) == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_the_checkpoint_holds_up_no_other(
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


def test_lines_of_logs_that_the_metadata_does_not_name_stay(bench: Maker) -> None:
    log = bench()
    (log.data / "unread-0").mkdir()
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("unread", 0): 5, ("gone", 0): 6})
    write(log.partition(), 30)
    until_idle(cleaner(log))
    assert checkpoint(log) == {("t", 0): checkpoint(log)["t", 0], ("unread", 0): 5}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_followers_log_may_have_gaps_before_it_is_cleaned_here(bench: Maker, enabled: bool) -> None:
    """Its leader has made them."""
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


def test_a_damaged_log_is_left_alone_and_others_go_on(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_batch_that_is_out_of_order_within_holds_up_nothing(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    """It came while the topic was not compacted: its own log is compacted around it."""
    log = bench(count=2)
    for index in range(2):
        for deltas in ((3, 2, 1, 0), (0, 1, 2, 3), (0, 0)):
            body, _ = batch_v2.encode_records([(delta, now_ms(), b"0", b"", ()) for delta in deltas], 0)
            span = batch_v2.Span(0, len(deltas) - 1, now_ms(), now_ms(), len(deltas))
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
        "Cleaner._finish",
    ],
)
def test_what_was_not_expected_costs_only_its_log(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """The janitor lives, the log is left alone until the next start, and why is logged with its trace."""
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
@pytest.mark.parametrize("where", ["find_range", "CleanerOffsets.put", "Compaction._build_map", "Cleaner._finish"])
def test_a_log_that_the_disk_refuses_holds_up_no_other(
    bench: Maker, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    """It is the one that is named, the others are compacted, and it is when the disk allows it."""
    log = bench(count=2)
    write(log.partition(0), 60)  # the filthiest, so that it is the first
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
    """(owner, name) of a function of the cleaner's."""
    *path, name = where.split(".")
    owners = {"Cleaner": Cleaner, "Compaction": compaction.Compaction, "CleanerOffsets": CleanerOffsets}
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
        one._offsets.put = lambda *_: None  # type: ignore[method-assign]
        until_idle(one)
        assert [(name, error.strerror) for name, error in met] == [("t-0", "dead")]


def test_a_topic_made_again_is_dirty_from_its_start(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    until_idle(one)
    assert one._offsets.get(log.partition()) == checkpoint(log)[("t", 0)]
    log.partition().incarnation += 1  # whose directory is not made yet
    assert one._offsets.get(log.partition()) is None
    log.partition().incarnation -= 1
    FormerLines([str(log.data)], CheckpointLocks(log.data.parent)).forget("t", 0, 0)
    assert one._offsets.get(log.partition()) is None


def test_a_partition_deleted_meanwhile(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    one.step()
    state = log.partition().state()
    log.partition().slot.publish(state._replace(incarnation=state.incarnation + 1))
    until_idle(one)
    assert one.partition is None


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
    """Of what came behind the cut no older records were looked for: it must not count as clean."""
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
    log.partition(0).slot.update(truncations=0)  # as a start finds it
    assert cleaner(log)._offsets.get(log.partition(0)) == 0


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_truncation_that_the_cleaner_has_seen_is_written_down_all_the_same(bench: Maker, policy: str) -> None:
    """Also of a topic that is not compacted at present."""
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    until_idle(one)
    log.configure(cleanup_policy=policy)
    log.partition().slot.update(truncations=1)
    assert one._offsets.get(log.partition()) == 0
    one.record_truncations()
    assert checkpoint(log) == {("t", 0): 0}


def test_a_truncation_that_the_disk_does_not_let_write_down_is_not_forgotten(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line in the file is that of before the cut; the other logs are written down."""
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


def test_a_truncation_within_a_round_that_changes_nothing_moves_no_checkpoint(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 3000, keys=3000)
    for steps in (1, 2):  # before its first step, and after it
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
    """The next round finds the log clean and swaps nothing; a power failure may take the renames all the same."""
    log = bench()
    write(log.partition(), 30)
    done: list[str] = []
    sync_dir, write_offsets = FILES.sync_dir, checkpoints.write_offsets

    def dies(_: object) -> None:
        raise KeyboardInterrupt

    generation = -1
    while generation != log.partition().state().generation:  # until a round swaps nothing
        generation = log.partition().state().generation
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(compaction.Compaction, "_see_whether_moved", dies)
            until_idle(cleaner(log))
    assert checkpoint(log) == {("t", 0): 0}

    def sync(directory: Any) -> None:
        if str(directory).endswith("t-0"):
            done.append("synced")
            assert PartitionLocks(log.run_dir / "partition.lock").try_lock(log.partition().slot.number), "no lock held"
        sync_dir(directory)

    def written(log_dir: Any, name: str, offsets: Any) -> None:
        done.append(f"up to {offsets['t', 0]}")
        write_offsets(log_dir, name, offsets)

    monkeypatch.setattr(FILES, "sync_dir", sync)
    monkeypatch.setattr(checkpoints, "write_offsets", written)
    until_idle(cleaner(log))
    assert done == ["synced", f"up to {checkpoint(log)['t', 0]}"], "nothing was left to swap"
    assert checkpoint(log)["t", 0] > 0


def test_a_log_that_recovery_has_cut_is_not_clean_beyond_that(bench: Maker) -> None:
    """It grows to beyond the cleaner's checkpoint before the cleaner looks."""
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


def test_a_checkpoint_beyond_the_logs_end_is_put_back(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file, or one of before a mend: the log would grow to beyond it, and what it got till then be clean."""
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


def test_a_checkpoint_beyond_the_logs_end_that_the_disk_keeps_is_not_believed(
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


def test_a_checkpoint_beyond_the_logs_end_is_named_at_a_start(bench: Maker, caplog: pytest.LogCaptureFixture) -> None:
    log = bench()
    write(log.partition(), 30)
    log.close()
    checkpoints.write_offsets(log.data, checkpoints.CLEANER, {("t", 0): 4503599627370796})
    again = bench()
    assert "4503599627370796 is beyond the log end offset 30" in caplog.text
    assert cleaner(again)._offsets.get(again.partition()) == 0


def test_a_round_that_changes_nothing_is_not_begun_again_before_the_backoff(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason, as a checkpoint that is not believed: the others have their turn, then there is a pause."""
    log = bench(count=2)
    write(log.partition(0), 60)
    write(log.partition(1), 30)
    one = cleaner(log)
    begun: list[str] = []
    steps = compaction.Compaction.steps

    def idle(self: compaction.Compaction) -> Iterator[int]:
        begun.append(repr(self.partition))
        return iter(()) if repr(self.partition) == "t-0" else steps(self)

    monkeypatch.setattr(compaction.Compaction, "steps", idle)
    until_idle(one)
    assert begun == ["t-0", "t-1"]
    until_idle(one)
    assert begun == ["t-0", "t-1", "t-0"]


def test_a_log_that_the_disk_refuses_is_not_begun_again_while_another_goes_on(
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


def test_as_many_logs_at_the_same_time_as_there_are_threads(bench: Maker) -> None:
    """They have their turns one after the other, and share the memory."""
    log = bench(count=3)
    for index in range(3):
        write(log.partition(index), 600, keys=600)
    one = cleaner(log, log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=1e6)
    assert [one.step(), one.step()] == [0.0, 0.0]
    assert len(one._running) == 2
    assert {each.compaction.memory.buffer_bytes for each in one._running} == {64 << 20}
    seen = set()
    for _ in range(6):
        seen.add(repr(one.partition))
        one.step()
        assert len(one._running) <= 2
    assert len(seen) > 1
    while until_idle(one):
        pass
    assert len(checkpoint(log)) == 3
    assert all(offset > 500 for offset in checkpoint(log).values())
    assert cleaner(log, log_cleaner_threads=0).step() == 15000.0


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_no_rate_at_all_is_a_long_pause(bench: Maker, rate: float) -> None:
    """Kafka takes such numbers, and waits."""
    log = bench()
    write(log.partition(), 3000, keys=3000)
    one = cleaner(log, log_cleaner_io_max_bytes_per_second=rate)
    one.step()
    assert one.step() > 100_000
    assert not one._uncleanable


def test_a_topic_made_again_waits_for_the_compaction_of_the_former_one(bench: Maker) -> None:
    """Both have the same directory, and would write to the same `.cleaned` files."""
    log = bench()
    write(log.partition(), 600, keys=600)
    one = cleaner(log, log_cleaner_threads=2)
    one.step()
    former = one._running[0]
    log.make_again()
    write(log.partition(), 30)
    assert not one._begin()
    assert one._running == [former]
    assert checkpoint(log) == {("t", 0): 0}
    until_idle(one)
    assert checkpoint(log)["t", 0] > 0


def test_of_a_topic_that_is_no_longer_compacted_nothing_more_goes(bench: Maker) -> None:
    """As when cleanup.policy is set to compact by mistake, and set back."""
    log = bench()
    write(log.partition(), 30)
    before = [(log.data / "t-0" / name).read_bytes() for name in log.files(".log")]
    one = cleaner(log)
    one.step()
    assert one.partition is not None
    log.configure(cleanup_policy="delete")
    until_idle(one)
    assert one.partition is None
    assert [(log.data / "t-0" / name).read_bytes() for name in log.files(".log")] == before
    assert log.files(".cleaned") == []


def test_configs_that_change_while_it_runs(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 3000, keys=3000)
    one = cleaner(log)
    values = dict(log.config) | {"log.cleaner.io.max.bytes.per.second": 1e3}
    one.step()
    assert one.configure(values.__getitem__)
    assert not one.configure(values.__getitem__), "nothing has changed"
    assert one.step() > 100_000
    one.configure((values | {"log.cleaner.io.max.bytes.per.second": 1e9}).__getitem__)
    assert one.step() < 10_000, "what was owed at the former rate is forgotten"
    one.configure((values | {"log.cleaner.backoff.ms": 7, "log.cleaner.dedupe.buffer.size": 4800}).__getitem__)
    one.close()
    one.step()
    assert one._running[0].compaction.memory.buffer_bytes == 4800
    assert one._running[0].compaction.memory.chunk_bytes == 256 << 10  # the least, as the rate is so low
    one.configure((values | {"log.cleaner.io.max.bytes.per.second": 1e300, "log.cleaner.backoff.ms": 7}).__getitem__)
    while until_idle(one, 7.0):
        pass
    assert checkpoint(log)[("t", 0)] > 2900


def test_memory_is_shared_by_the_threads() -> None:
    values = {
        "log.cleaner.threads": 4, "log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 1e308,
        "log.cleaner.dedupe.buffer.size": 128 << 20, "log.cleaner.io.buffer.load.factor": 0.9,
        "log.cleaner.io.buffer.size": 512 << 10,
    }  # fmt: skip
    assert log_cleaner.Settings.of(values.__getitem__).memory == (32 << 20, 0.9, 4 << 20)
    values |= {"log.cleaner.io.buffer.size": 128 << 20}
    assert log_cleaner.Settings.of(values.__getitem__).memory == (32 << 20, 0.9, 16 << 20)
    values |= {"log.cleaner.io.max.bytes.per.second": 10e6}
    assert log_cleaner.Settings.of(values.__getitem__).memory == (32 << 20, 0.9, 3_000_000)
