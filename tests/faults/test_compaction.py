"""The compaction checker finds planted faults, and none in a short run of a broker."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from .compaction_checker.ledger import Fate, Found, Ledger, Reading, Unit, Write
from .compaction_checker.targets import OneBroker
from .compaction_checker.trial import Trial


@pytest.mark.live
def test_compaction_keeps_committed_and_drops_deleted_records(tmp_path: Path) -> None:
    seed = random.randrange(1 << 16)
    print("seed", seed)
    summary = Trial(OneBroker(tmp_path), seed, 0.25).run()
    assert summary.differences == []


def _ledger(*writes: tuple[int | None, bytes, bytes | None, Fate]) -> Ledger:
    ledger = Ledger()
    for offset, key, value, fate in writes:
        ledger.sent(Write(0, key, value, Unit(fate), offset))
    return ledger


OLD, NEW, GONE = (0, b"a", b"1", Fate.COMMITTED), (1, b"a", b"2", Fate.COMMITTED), (1, b"a", None, Fate.COMMITTED)
ABORTED, UNKNOWN = (1, b"a", b"2", Fate.ABORTED), (1, b"a", b"2", Fate.UNKNOWN)
NOWHERE = (None, b"a", b"2", Fate.UNKNOWN)
FIRST, SECOND, TOMBSTONE = Found(0, b"a", b"1"), Found(1, b"a", b"2"), Found(1, b"a", None)


@pytest.mark.parametrize(
    ("written", "found", "said"),
    [
        ((OLD, NEW), (FIRST, SECOND), ""),
        ((OLD, NEW), (SECOND,), ""),
        ((OLD, NEW), (FIRST,), "it should be"),
        ((OLD, NEW), (), "not there"),
        ((OLD, NEW), (SECOND, FIRST), "do not rise"),
        ((OLD, GONE), (FIRST, TOMBSTONE), ""),
        ((OLD, GONE), (), ""),
        ((OLD, GONE), (FIRST,), "it should be"),
        ((OLD, ABORTED), (FIRST,), ""),
        ((OLD, ABORTED), (), "not there"),
        ((OLD, ABORTED), (FIRST, SECOND), "was aborted"),
        ((OLD, UNKNOWN), (FIRST,), ""),
        ((OLD, UNKNOWN), (SECOND,), ""),
        ((OLD, UNKNOWN), (), "not there"),
        ((OLD, NOWHERE), (FIRST, SECOND), ""),
        ((OLD, NEW), (FIRST, Found(1, b"a", b"3")), "was never written"),
        ((OLD, NEW), (FIRST, Found(1, b"b", b"2")), "was written as"),
    ],
)
def test_checker_reports_each_fault(written: tuple[Any, ...], found: tuple[Found, ...], said: str) -> None:
    faults = _ledger(*written).differences(Reading(0, 2, list(found)), True)
    assert bool(faults) == bool(said)
    assert not said or any(said in fault for fault in faults), faults


def test_checker_reports_a_reader_that_stops_before_a_committed_record() -> None:
    faults = _ledger(OLD, NEW).differences(Reading(0, 1, [FIRST]), True)
    assert faults == ["partition 0: readers stop at 1, but 1 is committed"]
    assert (
        _ledger(OLD, (1, b"a", b"2", Fate.OPEN), (2, b"b", b"3", Fate.COMMITTED)).differences(
            Reading(0, 1, [FIRST]), True
        )
        == []
    )
