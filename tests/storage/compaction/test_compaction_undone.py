"""Compaction, and then the loss of the marker that it relied on: by a failover, a power failure, or an unclean
election.

No read_committed consumer may see the remaining records of an aborted transaction, now or after it is aborted again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.compaction.compaction import Compaction, find_range
from odradek.storage.files import names
from odradek.storage.log import control_batch, transactions, truncate
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producer_state import ProducerEntry
from odradek.storage.recovery import recovery

from .. import logs
from ..live import NOW, Live, live, note_flushed
from ..log.following import receive
from ..written import write_snapshot
from .compacting import MEMORY, compact, consume, headers, keyed, put, seal

CONFIG = {"cleanup_policy": "compact", "delete_retention_ms": 0}


def _end(partition: Partition, commit: bool = False) -> None:
    assert control_batch.write_marker(partition, 5, 0, 1, commit, NOW) == errors.NONE


def _send(partition: Partition, sequence: int, key: bytes) -> None:
    put(partition, keyed([(key, b"within")], 5, 0, sequence, transaction=True))


def _filled(world: Live, waiting: bool = False) -> Partition:
    """Segments [0, 2), [2, 4), [4, 6) and the active one at 6: a transaction has 1 and 4, its abort would come at 6.

    `waiting`: a follower has up to 6, and the high watermark waits for it.
    """
    partition = world.partition()
    put(partition, keyed([(b"a", b"committed")]))
    _send(partition, 0, b"a")
    seal(partition)
    put(partition, keyed([(b"b", b"")]), keyed([(b"b", b"")]))
    seal(partition)
    _send(partition, 1, b"t")
    put(partition, keyed([(b"b", b"")]))
    seal(partition)
    note_flushed(partition)
    if waiting:
        partition.slot.update(hw_quorum=2, isr_count=2)
    return partition


def _cut(partition: Partition, offset: int) -> None:
    partition.slot.update(state=slots.FOLLOWER)
    with partition.locked() as values:
        truncate.truncate(partition, values, offset)


def _visible(partition: Partition) -> dict[bytes | None, bytes | None]:
    """The values that a read_committed consumer reads, by key."""
    values = partition.slot.read()
    end = slots.last_stable(values)
    aborted = transactions.aborted_between(partition, values, 0, end)
    skipped = [
        range(head.base_offset, head.last_offset + 1)
        for head in headers(partition)
        if any(head.producer_id == one and first <= head.base_offset for one, first in aborted if head.is_transactional)
    ]
    return {
        one.key: one.value
        for one in consume(partition)
        if one.offset < end and not any(one.offset in gone for gone in skipped)
    }


def test_round_ignores_markers_above_the_high_watermark(tmp_path: Path) -> None:
    """An abort marker that a failover may take: a former leader cleans, is cut, and gets the marker again."""
    with live(tmp_path, **CONFIG) as world:
        partition = _filled(world, waiting=True)
        _end(partition)
        assert partition.state().hw == 6 < partition.state().leo
        what = find_range(partition, 0, NOW)
        assert not what.due(0.0)
        assert not find_range(partition, 0, NOW, what.undecided).due(0.0)
        _cut(partition, 5)
        receive(partition, logs.batch(5, timestamp=NOW) + logs.marker(6, 5, 0, commit=False))
        assert transactions.aborted_between(partition, partition.slot.read(), 0, 7) == [(5, 1)]


def test_round_uses_an_earlier_high_watermark_if_replicas_are_always_behind(tmp_path: Path) -> None:
    with live(tmp_path, **CONFIG) as world:
        partition = _filled(world, waiting=True)
        _end(partition)
        first = find_range(partition, 0, NOW)
        put(partition, keyed([(b"z", b"")]))
        second = find_range(partition, 0, NOW, first.undecided)
        assert not second.due(0.0)
        partition.slot.update(hw=7)
        assert partition.state().leo == 8
        third = find_range(partition, 0, NOW, second.undecided)
        assert third.due(0.0) and third.undecided is not None
        list(Compaction(partition, third, MEMORY, NOW).steps())
        assert [one.offset for one in consume(partition)] == [0, 5]
        partition.slot.update(truncations=1)
        assert find_range(partition, 0, NOW, first.undecided).upto == 0, "the records that it has read may be lost"


def test_round_ignores_records_that_are_not_flushed(tmp_path: Path) -> None:
    """The marker in the active segment, or the newer value of a key, would go in a power failure otherwise."""
    for transactional in (True, False):
        with live(tmp_path / str(transactional), **CONFIG) as world:
            partition = world.partition()
            put(partition, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
            seal(partition)
            if transactional:
                _send(partition, 0, b"t")
                _end(partition)
            put(partition, keyed([(b"z", b"")]))
            assert partition.state().flushed == 0
            steps = Compaction(partition, find_range(partition, 0, NOW), MEMORY, NOW).steps()
            next(steps)
            state = partition.state()
            assert state.flushed == (state.leo if transactional else state.active_base)
            steps.close()


@pytest.mark.parametrize("cut", [6, 5, 4, 3])
def test_aborted_transaction_is_open_again_after_its_marker_is_truncated(tmp_path: Path, cut: int) -> None:
    """An unclean election may truncate below the high watermark that the cleaner used. The rest is aborted again."""
    with live(tmp_path, **CONFIG) as world:
        partition = _filled(world)
        _end(partition)
        assert compact(partition, world) is not None
        assert [one.offset for one in consume(partition)] == [0, 5]
        _cut(partition, cut)
        leo = partition.state().leo
        receive(partition, logs.batch(leo, producer=(5, 0, 2), attributes=0x10, timestamp=NOW, key=b"t"))
        assert _visible(partition).get(b"a") == b"committed"
        receive(partition, logs.marker(leo + 1, 5, 0, commit=False))
        assert partition.state().unstable == -1
        assert _visible(partition).get(b"a") == b"committed"
        assert b"t" not in _visible(partition)


def _partly_cleaned(world: Live) -> Partition:
    """A transaction has offset 1, which compaction has removed, and 3, which it has not reached; its abort is at 5."""
    partition = world.partition()
    put(partition, keyed([(b"a", b"committed")]))
    _send(partition, 0, b"a")
    put(partition, keyed([(b"b", b"")]))
    seal(partition)
    _send(partition, 1, b"t")
    put(partition, keyed([(b"b", b"")]))
    _end(partition)
    assert compact(partition, world) is not None
    assert [one.offset for one in consume(partition)] == [0, 2, 3, 4]
    return partition


@pytest.mark.parametrize("clean_upto", [0, 3])
def test_partly_compacted_transaction_is_open_after_its_marker_is_lost(tmp_path: Path, clean_upto: int) -> None:
    """A disk loses synced data. The remaining batch is above the snapshot, or below."""
    with live(tmp_path, **CONFIG) as world:
        partition = _partly_cleaned(world)
        path = names.segment_path(partition.directory, 3)
        lost = headers(partition)[-1]
        assert lost.is_control
        size = path.stat().st_size - lost.length - 12
        with path.open("r+b") as file:
            file.truncate(size)
        options: dict[str, Any] = {"log_start": 0, "compacted_upto": clean_upto}
        found = recovery.recover(partition.directory, partition.config, recovery_point=3, **options)
        assert (found.leo, found.first_unstable) == (5, 3)
        write_snapshot(partition.directory, 5, {5: ProducerEntry(0, 1, NOW, 1, [])})
        found = recovery.recover(partition.directory, partition.config, clean=True, recovery_point=5, **options)
        assert (found.leo, found.first_unstable) == (5, 3)


def test_transaction_from_below_the_log_start_is_open_if_the_checkpoint_lags(tmp_path: Path) -> None:
    """The cleaner's checkpoint of an uncleaned log is its start, and may be written before the log start's."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    names.segment_path(directory, 100).write_bytes(logs.batch(100, timestamp=NOW))
    write_snapshot(directory, 100, {5: ProducerEntry(0, 1, NOW, 50, [])})
    with live(tmp_path / "other", **CONFIG) as world:
        config = world.partition().config
    found = recovery.recover(directory, config, recovery_point=101, log_start=0, compacted_upto=100)
    assert (found.log_start, found.first_unstable) == (100, 50)
