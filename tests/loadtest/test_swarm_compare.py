"""The comparison of acknowledged and read records finds each kind of fault; on synthetic arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from odradek.loadtest.swarm import compare, ledger, record
from odradek.loadtest.swarm.compare import READ, Findings
from odradek.loadtest.swarm.ledger import ACKED, RUN, Ledger
from odradek.loadtest.swarm.record import IDEMPOTENT, PLAIN
from odradek.loadtest.swarm.runs import Run, Runs
from odradek.loadtest.swarm.turnout import CURVES, users

USERS = 3
COUNT = 12


def log(idempotent: bool = True) -> np.ndarray:
    """A partition in which each user's records are in order."""
    return np.array([(at, 1000 + at, at % USERS, at // USERS, idempotent) for at in range(COUNT)], READ)


def acks(read: np.ndarray) -> np.ndarray:
    """A ledger in which all of these records are acknowledged."""
    return np.array([(b"t", 0, row["offset"], row["digest"]) for row in read], ACKED)


def findings(acked: np.ndarray, read: np.ndarray) -> Findings:
    """The findings of the comparison on one partition."""
    found = Findings()
    compare.partition(found, "t-0", acked, read)
    return found


def dense(read: np.ndarray) -> np.ndarray:
    """The same records with consecutive offsets."""
    read["offset"] = np.arange(len(read))
    return read


def test_all_acknowledged_records_are_read() -> None:
    found = findings(acks(log())[::-1], log())
    assert found.kept
    assert "all 12 acknowledged records are there" in found.verdict


def test_unacknowledged_records_are_allowed() -> None:
    assert findings(acks(log())[:5], log()).kept


def test_nothing_acknowledged_is_not_a_success() -> None:
    empty = findings(acks(log()[:0]), log()[:0])
    assert not empty.kept
    assert "NOTHING" in empty.verdict


@pytest.mark.parametrize("gone", [0, 5, COUNT - 1])
def test_an_acknowledged_record_that_was_not_read_is_lost(gone: int) -> None:
    found = findings(acks(log()), np.delete(log(), gone))
    assert not found.kept
    assert f"t-0: 1 acknowledged records are lost, at offsets {gone}" in found.faults


def test_empty_partition_has_lost_all_records() -> None:
    assert "t-0: 12 acknowledged records are lost, at offsets 0, 1, 2…" in findings(acks(log()), log()[:0]).faults


def test_another_value_at_the_offset_is_a_loss() -> None:
    read = log()
    read["digest"][3] += 1
    assert "t-0: 1 acknowledged records are lost, at offsets 3" in findings(acks(log()), read).faults


def test_two_records_acknowledged_at_one_offset_are_a_fault() -> None:
    acked = acks(log())
    acked["offset"][4] = 7
    assert len(findings(acked, log()).faults) == 1


def test_duplicate_of_an_idempotent_user_is_a_fault() -> None:
    read = dense(np.append(log(), log()[2:3]))
    faults = findings(acks(log()), read).faults
    assert any("idempotent users are duplicated, at offsets 12" in fault for fault in faults)


def test_duplicate_of_a_plain_user_is_only_counted() -> None:
    read = dense(np.append(log(idempotent=False), log(idempotent=False)[2:3]))
    found = findings(acks(log()), read)
    assert found.kept
    assert found.retried == 1
    assert "1 duplicated by producers that are not idempotent" in found.verdict


def test_records_out_of_order_are_a_fault() -> None:
    read = log()
    read[[4, 7]] = read[[7, 4]]  # consecutive records of one user
    faults = findings(acks(dense(read.copy())), dense(read)).faults
    assert faults == ["t-0: 1 records of idempotent users are out of order, at offsets 7"]


def test_gap_in_the_offsets_is_a_fault() -> None:
    read = log()
    read["offset"][6:] += 1
    assert "t-0: 1 offsets do not follow the one before, at 7" in findings(acks(read), read).faults


def _reading(*runs: tuple[int, int]) -> list[str]:
    """The faults found in a group whose members noted these runs of offsets in this order."""
    found = Findings()
    compare.group(found, "g", "t-0", np.array([(b"g", b"t", 0, *run) for run in runs], RUN))
    return found.faults


@pytest.mark.parametrize("runs", [[(0, 9)], [(10, 12), (0, 9)], [(0, 9), (5, 20)], [(0, 30), (3, 4), (31, 31)]])
def test_group_may_read_records_twice(runs: list[tuple[int, int]]) -> None:
    assert _reading(*runs) == []


@pytest.mark.parametrize(("runs", "hole"), [([(1, 9)], 0), ([(0, 9), (11, 20)], 10), ([(0, 30), (3, 4), (32, 40)], 31)])
def test_gap_in_the_reads_of_a_group_is_a_fault(runs: list[tuple[int, int]], hole: int) -> None:
    assert _reading(*runs) == [f"t-0: 1 gaps in what g read, at offsets {hole}"]


def test_runs_end_where_partitions_move() -> None:
    runs = Runs()
    assert [runs.note("t", 0, offset) for offset in (4, 5, 8)] == [0, 0, 2]
    runs.end("t", 0)
    assert runs.note("t", 0, 20) == 0
    runs.end_all()
    assert [(run.first, run.last) for run in runs.ended] == [(4, 5), (8, 8), (20, 20)]


def test_ledger_keeps_the_reads_of_groups(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    book.read("g", [Run("t", 3, 0, 9), Run("t", 3, 10, 11)])
    book.flush()
    assert ledger.read(tmp_path).tolist() == [(b"g", b"t", 3, 0, 9), (b"g", b"t", 3, 10, 11)]
    assert len(ledger.acked(tmp_path)) == 0


def test_the_ledger_keeps_rows_and_ignores_a_torn_one(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    for offset in range(3):
        book.acked("topic", 1, offset, b"value %d" % offset)
    book.flush()
    (path,) = ledger.files(tmp_path)
    with path.open("ab") as file:
        file.write(b"torn")
    rows = ledger.acked(tmp_path)
    assert rows["topic"].tolist() == [b"topic"] * 3
    assert rows["offset"].tolist() == [0, 1, 2]
    assert rows["digest"].tolist() == [record.digest(b"value %d" % offset) for offset in range(3)]


def test_without_a_folder_there_is_no_ledger(tmp_path: Path) -> None:
    Ledger().acked("topic", 1, 0, b"value")
    assert len(ledger.acked(tmp_path)) == 0


@pytest.mark.parametrize("kind", [IDEMPOTENT, PLAIN])
def test_value_names_its_sender(kind: bytes) -> None:
    value = record.make(kind, 0xAB << 23, 42, 200)
    stamp = record.parse(value)
    assert len(value) == 200
    assert stamp is not None
    assert stamp[:3] == (kind, 0xAB << 23, 42)


@pytest.mark.parametrize("value", [None, b"", b"somebody else's", b"i x 1 2 ", b"i 1 x 2 "])
def test_value_of_another_sender_is_not_parsed(value: bytes | None) -> None:
    assert record.parse(value) is None


def test_users_have_unique_numbers() -> None:
    names, others = record.Names(), record.Names()
    numbers = [names.next() for _ in range(5)] + [others.next() for _ in range(5)]
    assert len(set(numbers)) == 10
    assert max(numbers) < 1 << 63


@pytest.mark.parametrize("name", sorted(CURVES))
def test_shapes_reach_all_users_and_end(name: str) -> None:
    counts = [users(CURVES[name], 40, seconds, 100) or 0 for seconds in range(100)]
    assert max(counts) == 40
    assert min(counts) >= 1
    assert len(set(counts)) > 1
    assert users(CURVES[name], 40, 100, 100) is None


@pytest.mark.parametrize("run_time", [30, 60, 120, 300, 3600])
def test_waves_of_a_soak_are_no_shorter_than_a_rebalance(run_time: int) -> None:
    counts = [users(CURVES["soak"], 40, seconds, run_time) for seconds in range(run_time)]
    changes = [second for second in range(1, run_time) if counts[second] != counts[second - 1]]
    assert len(changes) >= 1
    assert all(b - a >= 15 for a, b in zip([0, *changes], [*changes, run_time], strict=True))


@pytest.mark.live
def test_importing_the_swarm_does_not_load_locust() -> None:
    """Locust would patch the sockets and threads of the process that runs the tests."""
    code = "import sys; import odradek.loadtest.swarm.run; sys.exit('locust' in sys.modules or 'gevent' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
