"""Rows are filtered, sorted and paged; a wrong parameter is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import paging
from odradek.broker.exporter.console.paging import ROWS, Query
from odradek.protocol.wire import INT64_MAX

NAMES = ["alpha", "Beta", "gamma", "<b>beta</b>"]
COLUMNS: dict[str, Sequence[Any]] = {"name": NAMES, "lag": [3, 1, 2, 1]}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"filter": "BETA"}, [1, 3]),
        ({"filter": "<b>"}, [3]),
        ({"filter": "nothing"}, []),
        ({"sort": "lag"}, [1, 3, 2, 0]),
        ({"sort": "-lag"}, [0, 2, 1, 3]),
        ({"sort": "-lag", "filter": "beta"}, [1, 3]),
    ],
)
def test_rows_are_filtered_and_sorted(parameters: dict[str, str], expected: list[int]) -> None:
    assert paging.chosen(Query.parse(parameters), NAMES, COLUMNS) == expected


@given(st.integers(0, 1000), st.integers(1, 30))
def test_pages_have_every_row_once(count: int, wanted: int) -> None:
    about, rows = paging.page(Query(page=wanted), range(count))
    assert about["total"] == count and 1 <= about["page"] <= about["pages"] and len(rows) <= ROWS
    pages = [row for at in range(1, about["pages"] + 1) for row in paging.page(Query(page=at), range(count))[1]]
    assert pages == list(range(count))


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"page": "0"}, "page=0: must be a number of at least 1"),
        ({"page": "-1"}, "page=-1: must be a number of at least 1"),
        ({"page": "x" * 500}, f"page={'x' * 40}: must be a number of at least 1"),
        ({"page": "١"}, "page=١: must be a number of at least 1"),
        ({"page": str(INT64_MAX + 1)}, f"page={INT64_MAX + 1}: must be a number of at least 1"),
        ({"filter": "x" * 1001}, "filter: must have at most 1000 characters"),
        ({"sort": "owner"}, "sort=owner: must be one of name, lag"),
    ],
)
def test_a_wrong_parameter_is_refused(parameters: dict[str, str], line: str) -> None:
    with pytest.raises(Refused) as refused:
        paging.chosen(Query.parse(parameters), NAMES, COLUMNS)
    assert (refused.value.status, str(refused.value)) == (400, line)
