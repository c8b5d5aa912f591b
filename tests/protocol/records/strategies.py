"""Records for the tests: hypothesis strategies, and a fixed set with nulls, headers and long values."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from odradek.protocol.records.batch_v2 import Record

DAY = 86_400_000
NOW = 1_700_000_000_000

blobs = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=120, max_size=300))
header_keys = st.text(max_size=8).map(str.encode)
header_lists = st.lists(st.tuples(header_keys, blobs), max_size=3)
timestamps = st.integers(NOW - DAY, NOW + DAY)


@st.composite
def record_lists(
    draw: st.DrawFn,
    headers: st.SearchStrategy[Any] = header_lists,
    gaps: bool = True,
    times: st.SearchStrategy[int] = timestamps,
    base: int | None = None,
    min_size: int = 1,
) -> list[Record]:
    """Lists of (offset, timestamp, key, value, headers) with rising offsets; with `gaps` not dense."""
    offset = draw(st.integers(0, 1 << 40)) if base is None else base
    out: list[Record] = []
    for _ in range(draw(st.integers(min_size, 12))):
        out.append((offset, draw(times), draw(blobs), draw(blobs), draw(headers)))
        offset += 1 + (draw(st.integers(0, 300)) if gaps else 0)
    return out


def mixed(count: int = 40, headers: bool = True, base: int = 0) -> list[Record]:
    """Nulls, empties, long values, several headers, timestamps up and down; dense from `base`."""
    out: list[Record] = []
    for i in range(count):
        key = None if i % 4 == 0 else b"" if i % 7 == 0 else b"key-%d" % i
        value = None if i % 5 == 4 else bytes([i % 251]) * (i * 37 % 5000)
        extra = [(b"h", None), ("ключ".encode(), b"x" * i)][: i % 3] if headers else []
        out.append((base + i, NOW + (i * 7919) % 1000 - 500, key, value, extra))
    return out


def plain(records: Iterable[Record]) -> list[Record]:
    """Records with headers as a list of tuples, to compare."""
    return [
        (offset, time, key, value, [(name, text) for name, text in headers])
        for offset, time, key, value, headers in records
    ]
