"""The table of faults: each is met by the requests that it is for, in their order, and as often as it says."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.ipc.faults import fault_table
from odradek.ipc.faults.fault_table import ARMED, NO_BOUND, FaultTable, FaultTableError


class Tables(RuleBasedStateMachine):
    """A program that sets and removes faults, and two processes that meet them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "faults")
        self.program = FaultTable.create(path)
        self.workers = [FaultTable.attach(str(path)) for _ in range(2)]
        self.rows: dict[int, list[int]] = {}  # key, to skip, left, error, hits; by place

    @precondition(lambda self: len(self.rows) < 6)
    @rule(
        key=st.integers(0, 2), error=st.integers(1, 9), times=st.sampled_from([NO_BOUND, 1, 2]), after=st.integers(0, 2)
    )
    def add(self, key: int, error: int, times: int, after: int) -> None:
        at = self.program.add(key, error, 0, times, after)
        assert at not in self.rows
        self.rows[at] = [key, after, times, error, 0]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from(sorted(self.rows)))
        assert self.program.hits(at) == self.rows.pop(at)[4]
        self.program.remove(at)

    @rule(key=st.integers(0, 3), worker=st.integers(0, 1))
    def hit(self, key: int, worker: int) -> None:
        found = self.workers[worker].hit(key)
        assert (found and (found.row, found.error)) == self.expected(key)

    def expected(self, key: int) -> tuple[int, int] | None:
        """The first row that is due; those before it have one request less to skip."""
        for at in sorted(self.rows):
            row = self.rows[at]
            if row[0] == key and row[2]:
                if row[1]:
                    row[1] -= 1
                    continue
                row[2] -= row[2] > 0
                row[4] += 1
                return at, row[3]
        return None

    @invariant()
    def rows_in_use_are_counted(self) -> None:
        assert self.workers[0].words[ARMED] == len(self.rows)

    def teardown(self) -> None:
        for table in (self.program, *self.workers):
            table.close()
        self.folder.cleanup()


TestTables = Tables.TestCase


def test_table_has_room_for_many_faults_and_no_more(tmp_path: Path) -> None:
    table = FaultTable.create(tmp_path / "faults")
    for _ in range(32):
        table.add(0, 6, 0, 1, 0)
    with pytest.raises(IndexError, match="32 faults are set already"):
        table.add(0, 6, 0, 1, 0)
    table.close()


def test_removed_fault_is_not_set_any_more(tmp_path: Path) -> None:
    table = FaultTable.create(tmp_path / "faults")
    at = table.add(1, 0, 500, NO_BOUND, 0)
    fault = table.hit(1)
    assert fault is not None and fault.delay == 0.5 and table.is_set(fault)
    table.remove(at)
    assert not table.is_set(fault)
    table.close()


def test_lock_of_a_stopped_process_is_an_error_and_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FaultTable.create(tmp_path / "faults")
    monkeypatch.setattr(fault_table, "_LOCK_S", 0.01)
    with (tmp_path / "faults").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FaultTableError, match="a paused process of the broker has the lock"):
            table.hit(0)
    assert table.hit(0) is None
    table.close()


@pytest.mark.parametrize("mode", [0o622, 0o660, 0o400])
def test_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    FaultTable.create(tmp_path / "faults").close()
    (tmp_path / "faults").chmod(mode)
    with pytest.raises(FaultTableError, match=r"not a table of faults of this user alone|Permission denied"):
        FaultTable.attach(str(tmp_path / "faults"))


def test_link_and_missing_file_are_refused(tmp_path: Path) -> None:
    FaultTable.create(tmp_path / "faults").close()
    (tmp_path / "link").symlink_to(tmp_path / "faults")
    for name in ("link", "missing"):
        with pytest.raises(FaultTableError, match=f"odradek.faults.file={tmp_path / name}: .*; remove the setting"):
            FaultTable.attach(str(tmp_path / name))
