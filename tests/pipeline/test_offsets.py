"""Offsets: Spark's JSON, and what each way to specify them means in a log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import OptionError
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.offsets import All, Exactly, Since, Spec
from odradek.pipeline.types import EARLIEST, LATEST

from .logs import Kept, Logs

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
PARTITIONS = [A0, A1, B0]


def logs() -> Logs:
    """Offsets 5 to 9 with times 100 to 104; no records; and 0 to 2 with times 50, 200 and 300, two of them stable."""
    return Logs({A0: Kept(5, [100, 101, 102, 103, 104], 10), A1: Kept(7, [], 7), B0: Kept(0, [50, 200, 300], 2)})


@pytest.mark.parametrize(
    ("spec", "what", "committed", "meant"),
    [
        (All(EARLIEST), "starting", False, (5, 7, 0)),
        (All(LATEST), "ending", False, (10, 7, 3)),
        (All(LATEST), "ending", True, (10, 7, 2)),
        (All(8), "starting", True, (8, 8, 8)),
        (Exactly({A0: 8, A1: LATEST, B0: EARLIEST}), "starting", False, (8, 7, 0)),
        (Exactly({A0: LATEST, A1: 99, B0: LATEST}), "ending", True, (10, 99, 2)),
        (Since(102, or_latest=True), "starting", False, (7, 7, 1)),
        (Since({A0: 0, A1: 0, B0: 51}, or_latest=True), "starting", False, (5, 7, 1)),
        (Since(103), "ending", False, (8, 7, 1)),
        (Since(103), "ending", True, (8, 7, 1)),
        (Since(250), "ending", False, (10, 7, 2)),
        (Since(250), "ending", True, (10, 7, 2)),
        (Since(301), "ending", True, (10, 7, 2)),
        (Since(301), "ending", False, (10, 7, 3)),
    ],
)
def test_offset_specs_are_resolved(spec: Spec, what: str, committed: bool, meant: tuple[int, ...]) -> None:
    found = offsets.resolve(spec, PARTITIONS, logs(), committed, what)
    assert found == dict(zip(PARTITIONS, meant, strict=True))


def test_timestamp_in_an_open_transaction_resolves_to_the_last_stable_offset() -> None:
    """The record exists, but the range ends before it."""
    log = Logs({B0: Kept(0, [50, 200, 300], 1)})
    assert offsets.resolve(Since(300), [B0], log, committed=True, what="starting") == {B0: 1}
    assert offsets.resolve(Since(300), [B0], log, committed=False, what="starting") == {B0: 2}


def test_given_offsets_are_not_requested() -> None:
    log = logs()
    offsets.resolve(Exactly({A0: 8, A1: LATEST, B0: 1}), PARTITIONS, log, committed=False, what="starting")
    assert log.asked == [("end", [A1])]


@pytest.mark.parametrize(
    ("spec", "what", "told"),
    [
        (Exactly({A0: 5, B0: 0}), "starting", "startingOffsets must name every partition .*: a-1 is missing"),
        (
            Exactly(dict.fromkeys([*PARTITIONS, ("c", 3)], 1)),
            "ending",
            "endingOffsets names c-3, which the query does",
        ),
        (Since({A0: 5}), "ending", "endingOffsetsByTimestamp must name every partition .*: a-1, b-0 is missing"),
        (Since(200), "starting", "as late as the starting timestamp 200 in a-0, a-1; .*Strategy=latest"),
    ],
)
def test_errors_name_the_partitions(spec: Spec, what: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        offsets.resolve(spec, PARTITIONS, logs(), committed=False, what=what)


PARTITION = st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1))


@given(st.dictionaries(PARTITION, st.integers(-2, 2**63 - 1)))
def test_offsets_round_trip_through_json(found: dict[tuple[str, int], int]) -> None:
    assert offsets.from_json(json.loads(json.dumps(offsets.as_json(found)))) == found


def test_json_is_written_in_order() -> None:
    text = json.dumps(offsets.as_json({("b", 0): -2, ("a", 10): 1, ("a", 9): 23}))
    assert text == '{"a": {"9": 23, "10": 1}, "b": {"0": -2}}'


@pytest.mark.parametrize("nested", [None, 5, [], {"a": 5}, {"a": {"x": 5}}, {"a": {"0": "5"}}, {"a": {"٣": 5}}])
def test_malformed_offsets_json_is_refused(nested: object) -> None:
    with pytest.raises(ValueError):
        offsets.from_json(nested)


def test_long_lists_of_partitions_are_abbreviated() -> None:
    assert offsets.names(("t", i) for i in range(12)) == "t-0, t-1, t-2, t-3, t-4 and 7 more"
