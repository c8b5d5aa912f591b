"""The line splitter, compared with Python's own, and the parser of keys and headers."""

from __future__ import annotations

import io

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.commands.console_producer.lines import LineMessageReader, lines, reader

BYTES = st.text(alphabet="\n\r\0a\x85", max_size=40).map(lambda text: text.encode("latin-1"))


class Drip(io.RawIOBase):
    """Returns a few bytes at each read."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def read(self, size: int = -1) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@given(st.lists(BYTES, max_size=12))
def test_lines_end_only_at_newlines(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    want = whole.split(b"\n")
    if not want[-1]:
        want.pop()
    assert [line for batch in lines(Drip(pieces)) for line in batch] == want  # type: ignore[arg-type]  # a test double


def test_plain_lines_are_not_parsed() -> None:
    assert (
        LineMessageReader().plain
        and not LineMessageReader(parse_key=True).plain
        and not LineMessageReader(null_marker=b"").plain
    )


def test_separators_must_differ() -> None:
    with pytest.raises(click.UsageError):
        reader({"headers.separator": ":"})
    with pytest.raises(click.UsageError):
        reader({"null.marker": "\t"})


def test_only_the_first_separator_counts() -> None:
    made = reader({"parse.key": "true", "key.separator": "::"})
    assert made.parse(b"a:b::c::d", 1) == (b"a:b", b"c::d", [])
