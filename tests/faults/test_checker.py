"""The checker finds the fault in each bad history."""

from __future__ import annotations

import pytest

from .checker import Found, History, Log, faults, key_of


def log_of(*numbers: int, producer: int = 1, start: int = 0) -> Log:
    rows = [Found(start + at, producer, number, key_of(producer, number)) for at, number in enumerate(numbers)]
    return {0: rows}


def history(*acked: int, idempotent: bool = True, sent: int = 10, start: int = 0) -> History:
    return History(1, idempotent, {0: sent}, {0: {number: start + at for at, number in enumerate(acked)}})


def kinds(found: list[str]) -> set[str]:
    return {line.split(":")[0] for line in found}


def test_good_history_has_no_faults() -> None:
    assert faults([history(0, 1, 2)], log_of(0, 1, 2), [log_of(0, 1)]) == []


def test_unanswered_record_may_be_stored_or_not() -> None:
    assert faults([history(0, 1)], log_of(0, 1, 2, 3), [log_of(0, 1, 2)]) == []
    assert faults([history(0, idempotent=False)], log_of(0, 5, 4), []) == []


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (log_of(0, 1), "lost"),
        (log_of(0, 1, 1, 2), "doubled"),
        (log_of(0, 2, 1), "reordered"),
        (log_of(0, 1, 3), "gap"),
        (log_of(0, 1, 2, 10), "stranger"),
        (log_of(0, 1, 2, producer=2), "stranger"),
        (log_of(0, 1, 2, start=1), "hole"),
        ({0: [*log_of(0, 1)[0], Found(3, 1, 2, key_of(1, 2))]}, "hole"),
        ({0: [*log_of(0, 1)[0], Found(2, 1, 2, b"other")]}, "stranger"),
    ],
)
def test_fault_in_a_log_is_found(log: Log, fault: str) -> None:
    assert fault in kinds(faults([history(0, 1, 2)], log, []))


def test_acknowledged_offset_of_another_record_is_found() -> None:
    moved = History(1, True, {0: 10}, {0: {0: 0, 1: 2, 2: 1}})
    assert kinds(faults([moved], log_of(0, 1, 2), [])) == {"moved"}


def test_duplicate_is_found_without_idempotence() -> None:
    assert kinds(faults([history(0, 1, idempotent=False)], log_of(0, 1, 1), [])) == {"doubled"}


def test_wrong_order_is_found_without_idempotence() -> None:
    assert "reordered" in kinds(faults([history(0, 2, 1, idempotent=False)], log_of(0, 2, 1), []))


def test_stored_refused_record_is_found() -> None:
    refused = history(0, 1, idempotent=False)
    refused.refused = {0: {2}}
    assert kinds(faults([refused], log_of(0, 1, 2), [])) == {"refused"}


def test_skipped_record_is_found() -> None:
    tail = {0: [row for row in log_of(0, 1, 2)[0] if row.offset != 1]}
    assert kinds(faults([history(0, 1, 2)], log_of(0, 1, 2), [tail])) == {"skipped"}


def test_vanished_record_is_found() -> None:
    assert kinds(faults([history(0, 1)], log_of(0, 1), [log_of(0, 1, 2)])) == {"vanished"}


def test_records_removed_by_retention_are_not_lost() -> None:
    log = {0: log_of(0, 1, 2, 3)[0][2:]}
    assert faults([history(0, 1, 2, 3)], log, [log_of(0, 1, 2)], trimmed=True) == []
    assert kinds(faults([history(0, 1, 2, 3)], {0: log[0][1:]}, [])) == {"hole"}
