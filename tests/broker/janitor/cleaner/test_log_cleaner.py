"""The janitor's log cleaner: the choice of logs, its rate, and topics that change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.broker.janitor import log_cleaner
from odradek.broker.process.checkpoint_lock import CheckpointLocks, DeletedPartitionLines
from odradek.storage.compaction import compaction

from .cleaning import Maker, checkpoint, cleaner, until_idle, write


def test_dirtiest_log_first_then_all_that_are_due(bench: Maker) -> None:
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


def test_only_a_stuck_replica_delays_a_round(bench: Maker) -> None:
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


def test_throttled_round_is_aborted_cleanly(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 3000, keys=3000)
    one = cleaner(log, log_cleaner_io_max_bytes_per_second=1e3)
    one.step()
    assert 100_000 < one.step() < 400_000  # 256 KiB at 1 kB per second, less the time of the read
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


def test_disabled_cleaner_does_nothing(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    assert cleaner(log, log_cleaner_enable=False).step() == 15000.0
    assert checkpoint(log) == {}


def test_a_topic_made_again_is_dirty_from_its_start(bench: Maker) -> None:
    log = bench()
    write(log.partition(), 30)
    one = cleaner(log)
    until_idle(one)
    assert one._offsets.get(log.partition()) == checkpoint(log)[("t", 0)]
    log.partition().incarnation += 1  # the new topic's directory does not exist yet
    assert one._offsets.get(log.partition()) is None
    log.partition().incarnation -= 1
    DeletedPartitionLines([str(log.data)], CheckpointLocks(log.data.parent)).forget("t", 0, 0)
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


def test_a_round_that_changes_nothing_is_not_begun_again_before_the_backoff(
    bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any reason, such as an ignored checkpoint: other logs are compacted first, then the cleaner pauses."""
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


@pytest.mark.slow
def test_as_many_logs_at_the_same_time_as_there_are_threads(bench: Maker) -> None:
    """Compactions alternate, and share the memory."""
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


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_rate_of_zero_is_a_long_pause(bench: Maker, rate: float) -> None:
    """Kafka accepts such rates, and waits."""
    log = bench()
    write(log.partition(), 3000, keys=3000)
    one = cleaner(log, log_cleaner_io_max_bytes_per_second=rate)
    one.step()
    assert one.step() > 100_000
    assert not one._uncleanable


def test_a_topic_made_again_waits_for_the_compaction_of_the_former_one(bench: Maker) -> None:
    """Both topics have the same directory, and would write the same `.cleaned` files."""
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


def test_topic_no_longer_compacted_loses_no_records(bench: Maker) -> None:
    """For instance, cleanup.policy was set to compact by mistake, and is set back."""
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


@pytest.mark.slow
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
    assert one.step() < 10_000, "the pause of the former rate must not apply"
    one.configure((values | {"log.cleaner.backoff.ms": 7, "log.cleaner.dedupe.buffer.size": 4800}).__getitem__)
    one.close()
    one.step()
    assert one._running[0].compaction.memory.buffer_bytes == 4800
    assert one._running[0].compaction.memory.chunk_bytes == 256 << 10  # the minimum, because of the low rate
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
    assert log_cleaner.CleanerConfig.of(values.__getitem__).memory == (32 << 20, 0.9, 4 << 20)
    values |= {"log.cleaner.io.buffer.size": 128 << 20}
    assert log_cleaner.CleanerConfig.of(values.__getitem__).memory == (32 << 20, 0.9, 16 << 20)
    values |= {"log.cleaner.io.max.bytes.per.second": 10e6}
    assert log_cleaner.CleanerConfig.of(values.__getitem__).memory == (32 << 20, 0.9, 3_000_000)
