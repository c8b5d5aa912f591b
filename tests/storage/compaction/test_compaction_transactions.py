"""Compaction among transactions: over segments, over rounds, with markers far behind their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import errors
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions, PassState
from odradek.storage.compaction.compaction import CleaningAborted, Compaction, DedupeBuffer, find_range
from odradek.storage.log import control_batch, transactions
from odradek.storage.log.partition import Partition
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.recovery import recovery
from odradek.storage.tools import check

from ..live import NOW, Live, live
from .compacting import Kept, compact, consume, headers, keyed, put, seal

DAY = 86_400_000
CONFIG = {"cleanup_policy": "compact", "delete_retention_ms": 1000}


def end(partition: Partition, producer: int, commit: bool, epoch: int = 0) -> None:
    assert control_batch.write_marker(partition, producer, epoch, 1, commit, NOW) == errors.NONE


def send(partition: Partition, producer: int, sequence: int, value: bytes, key: bytes = b"a", epoch: int = 0) -> None:
    put(partition, keyed([(key, value)], producer, epoch, sequence, transaction=True))


def committed(partition: Partition) -> dict[bytes | None, bytes | None]:
    """The values that a read_committed consumer reads, by key: it skips an aborted transaction up to its marker."""
    values = partition.slot.read()
    ahead = sorted(transactions.aborted_between(partition, values, 0, 1 << 60), key=lambda row: row[1], reverse=True)
    records = {one.offset: one for one in consume(partition)}
    found, aborting = {}, set()
    for head in headers(partition):
        while ahead and ahead[-1][1] <= head.last_offset:
            aborting.add(ahead.pop()[0])
        if head.is_control:
            aborting.discard(head.producer_id)
        elif not (head.is_transactional and head.producer_id in aborting):
            within = (records.get(offset) for offset in range(head.base_offset, head.last_offset + 1))
            found.update({one.key: one.value for one in within if one is not None})
    return found


def test_abort_marker_in_the_active_segment_drops_no_committed_record(tmp_path: Path) -> None:
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"committed")]))
        send(partition, 5, 0, b"aborted")
        seal(partition)
        end(partition, 5, commit=False)
        assert compact(partition, world) is not None
        assert committed(partition) == {b"a": b"committed"}
        assert [one.value for one in consume(partition)] == [b"committed"]
        _goes_on(world, {b"a": b"committed", b"z": b""})


def test_abort_marker_in_a_segment_that_is_not_cleaned_yet(tmp_path: Path) -> None:
    """min.compaction.lag.ms ends the pass before the sealed segment with the marker."""
    with live(tmp_path, **CONFIG, min_compaction_lag_ms=1000) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"committed")]))
        send(partition, 5, 0, b"aborted")
        seal(partition)
        assert control_batch.write_marker(partition, 5, 0, 1, False, NOW + DAY) == errors.NONE
        seal(partition)
        assert find_range(partition, None, NOW + DAY).upto == 2
        assert compact(partition, world, NOW + DAY) is not None
        assert [one.value for one in consume(partition)] == [b"committed"]


def test_abort_below_the_first_dirty_offset_drops_no_later_commit(tmp_path: Path) -> None:
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"old"), (b"d", b"old")]))
        send(partition, 5, 0, b"aborted")
        end(partition, 5, commit=False)
        seal(partition)
        compact(partition, world)
        send(partition, 5, 1, b"new")
        put(partition, keyed([(b"d", None)], 5, 0, 2, transaction=True))
        end(partition, 5, commit=True)
        seal(partition)
        compact(partition, world)
        assert [(one.key, one.value) for one in consume(partition)] == [(b"a", b"new"), (b"d", None)]
        put(partition, keyed([(b"y", b"")]))
        seal(partition)
        compact(partition, world, NOW + DAY)
        assert committed(partition) == {b"a": b"new", b"y": b""}
        _goes_on(world, {b"a": b"new", b"y": b"", b"z": b""})


def test_one_transaction_over_several_segments_and_groups(tmp_path: Path) -> None:
    for commit in (True, False):
        with live(tmp_path / str(commit), **CONFIG, segment_bytes=400) as world:
            partition = world.partition()
            put(partition, keyed([(b"%d" % n, b"before") for n in range(4)]))
            for n in range(4):
                send(partition, 5, n, b"within" * 30, b"%d" % n)
                seal(partition)
            end(partition, 5, commit)
            for later in (0, 1, 2000, 4000):
                put(partition, keyed([(b"x", b"")]))
                seal(partition)
                compact(partition, world, NOW + later)
                values = {value for key, value in committed(partition).items() if key != b"x"}
                assert values == {b"within" * 30 if commit else b"before"}, f"{commit}, {later}"
            assert [str(fault) for fault in check.check(world.root / "t-0", deep=True)] == []


def test_an_abort_with_a_later_epoch_ends_the_transaction_and_the_next_one_counts(tmp_path: Path) -> None:
    """A coordinator that times a transaction out raises the producer's epoch for the marker."""
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        put(partition, keyed([(b"a", b"old")]))
        send(partition, 5, 0, b"aborted")
        seal(partition)
        end(partition, 5, commit=False, epoch=1)
        send(partition, 5, 0, b"new", epoch=1)
        seal(partition)
        end(partition, 5, commit=True, epoch=1)
        assert compact(partition, world) is not None
        assert committed(partition) == {b"a": b"new"}
        found = recovery.recover(world.root / "t-0", partition.config)
        assert (found.producers[5].epoch, found.leo) == (1, 5)


def test_marker_is_kept_as_long_as_data_of_its_transaction(tmp_path: Path) -> None:
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        send(partition, 5, 0, b"1")
        seal(partition)
        end(partition, 5, commit=True)
        send(partition, 5, 1, b"2", b"other")
        end(partition, 5, commit=True)
        for later in (0, 2000, 4000):
            put(partition, keyed([(b"x", b"")]))
            seal(partition)
            compact(partition, world, NOW + later)
            assert 1 in [head.base_offset for head in headers(partition) if head.is_control]
        put(partition, keyed([(b"a", b"3")]))
        seal(partition)
        for later, there in ((6000, True), (6001, True), (7002, False), (7003, False)):
            put(partition, keyed([(b"x", b"")]))
            seal(partition)
            compact(partition, world, NOW + later)
            assert (1 in [head.base_offset for head in headers(partition)]) == there, later


def test_truncation_before_the_lock_is_taken_aborts_the_round(tmp_path: Path) -> None:
    """An ended transaction may be open again."""
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        send(partition, 5, 0, b"1")
        seal(partition)
        end(partition, 5, commit=True)
        what = find_range(partition, None, NOW)
        assert what.upto == 1
        partition.slot.update(hw=0)
        with pytest.raises(CleaningAborted):
            list(Compaction(partition, what, DedupeBuffer(), NOW).steps())


def test_the_state_of_a_pass(tmp_path: Path) -> None:
    """As Kafka's CleanedTransactionMetadata has it after the same batches."""
    with live(tmp_path, **CONFIG) as world:
        partition = world.partition()
        send(partition, 5, 0, b"1")  # 0
        send(partition, 6, 0, b"1")  # 1
        end(partition, 5, commit=False)  # 2
        send(partition, 7, 0, b"1")  # 3
        end(partition, 6, commit=True)  # 4
        send(partition, 5, 1, b"1")  # 5
        end(partition, 5, commit=True)  # 6
        end(partition, 7, commit=False)  # 7
        first, second = AbortedTxn(5, 0, 2, 1), AbortedTxn(7, 3, 7, 8)
        states, spent = _walk(world, [second, first])
        nothing: frozenset[int] = frozenset()
        five, six, seven = (frozenset([producer]) for producer in (5, 6, 7))
        assert states == [
            PassState(nothing, five, (second,)), PassState(six, five, (second,)), PassState(six, nothing, (second,)),
            PassState(six, seven, ()), PassState(nothing, seven, ()), PassState(five, seven, ()),
            PassState(nothing, seven, ()), PassState(nothing, nothing, ()),
        ]  # fmt: skip
        assert spent == [False] * 4
        states, spent = _walk(world, [second, first], 4)
        assert states[0] == PassState(nothing, nothing, ())
        assert spent == [True, False, True]


def _walk(world: Live, rows: list[AbortedTxn], start: int = 0) -> tuple[list[PassState], list[bool]]:
    """The states after each batch from offset `start` on, and which markers end nothing."""
    from odradek.protocol.batch import CONTROL
    from odradek.storage.segment.scan import Scan

    passing, states, spent = CleanedTransactions(rows), [], []
    with (world.root / "t-0" / f"{0:020d}.log").open("rb") as file:
        scan = Scan(file.fileno())
        for batch in scan:
            if batch.base_offset < start:
                continue
            if batch.attributes & CONTROL:
                spent.append(passing.is_spent(batch, scan.payload()))
            else:
                passing.is_aborted(batch)
            states.append(passing.state)
    return states, spent


def _goes_on(world: Live, expected: dict[bytes | None, bytes | None]) -> None:
    """Check that further rounds and a start change nothing."""
    partition = world.partition()
    put(partition, keyed([(b"z", b"")]))
    for later in (DAY, DAY + 1, 2 * DAY, 3 * DAY):
        seal(partition)
        put(partition, keyed([(b"z", b"")]))
        compact(partition, world, NOW + later)
        assert committed(partition) == expected
    assert [str(fault) for fault in check.check(world.root / "t-0", deep=True)] == []
    recovery.recover(world.root / "t-0", partition.config)
    assert {one.key for one in consume(world.partition(3))} == set(expected)
    assert isinstance(consume(partition)[0], Kept)
