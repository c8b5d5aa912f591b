"""The steps of a restore by key from several partitions, without Spark."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.jobs.restore import merging
from odradek.pipeline.types import Range

Times = dict[int, list[int | None]]
"""Timestamps by partition for the offsets from 0 on; None without a record."""
Level = tuple[int, int, int]
"""Level, partition, offset."""


def levels(times: Times) -> list[Level]:
    """All records in the order of their level, the highest timestamp so far in their partition."""
    found = []
    for index, row in times.items():
        latest = accumulate((-1 if time is None else time for time in row), max)
        found += [(level, index, at) for at, level in enumerate(latest) if row[at] is not None]
    return sorted(found)


def steps(times: Times, size: int) -> list[dict[int, Range]]:
    """The steps that Spark's aggregates would lead to."""
    blocks: dict[tuple[int, int], list[int]] = {}
    for index, row in times.items():
        for at, time in enumerate(row):
            if time is not None:
                blocks.setdefault((index, at // size), []).append(time)
    bounds = merging.bounds([(*block, max(row)) for block, row in blocks.items()])
    ranges = {index: Range("t", index, 0, len(row)) for index, row in times.items()}
    cuts = {index: [0, *(_first(times, index, bound) for bound in bounds), len(row)] for index, row in times.items()}
    return list(merging.cut(cuts, bounds, ranges, size))


def _first(times: Times, index: int, bound: int) -> int:
    row = times[index]
    return next((at for at, time in enumerate(row) if time is not None and time >= bound), len(row))


TIME = st.none() | st.integers(0, 30)
TIMES = st.dictionaries(st.integers(0, 3), st.lists(TIME, min_size=1, max_size=25), min_size=1)


@given(TIMES, st.integers(1, 9))
def test_steps_are_pieces_of_the_order_by_level(times: Times, size: int) -> None:
    """Each record once, no record in a later step than one of a higher level, steps within the size limit."""
    order = levels(times)
    gone = []
    for step in steps(times, size):
        rows = [row for row in order if row[1] in step and step[row[1]].start <= row[2] < step[row[1]].end]
        assert all(sum(row[1] == index for row in rows) <= size for index in step)
        gone += rows
    assert gone == order


@pytest.mark.parametrize(
    ("times", "size", "expected"),
    [
        ({0: [1, 2, 3, 4], 1: [3, 4]}, 4, [{0: (0, 4), 1: (0, 2)}]),
        ({0: [1, 2, 3, 4], 1: [3, 4]}, 2, [{0: (0, 2)}, {0: (2, 4), 1: (0, 2)}]),
        ({0: [9, 1, 1, 1, 1], 1: [5]}, 2, [{1: (0, 1)}, {0: (0, 2)}, {0: (2, 4)}, {0: (4, 5)}]),
    ],
)
def test_steps_of_examples(times: Times, size: int, expected: list[dict[int, tuple[int, int]]]) -> None:
    """All at once; the older half first; one timestamp ahead of the others."""
    found = [{index: (one.start, one.end) for index, one in step.items()} for step in steps(times, size)]
    assert found == expected
