"""The prefix with a schema's id is split off as it was packed; other bytes have none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import schema_prefix
from odradek.protocol.wire import INT32_MAX


@given(st.integers(-INT32_MAX - 1, INT32_MAX), st.binary(max_size=20))
def test_a_prefix_is_split_off(number: int, body: bytes) -> None:
    assert schema_prefix.split(schema_prefix.pack(number) + body) == (number, body)


def test_a_prefix_is_a_zero_and_the_id() -> None:
    assert schema_prefix.pack(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize("data", [None, b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x"])
def test_other_bytes_have_no_prefix(data: bytes | None) -> None:
    assert schema_prefix.split(data) == (None, None)
