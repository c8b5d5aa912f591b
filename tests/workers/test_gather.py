"""Small slices of files are sent with what is around them (workers.gather)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek.storage.openfile import FileSlice, OpenFile
from odradek.workers.gather import MOST, SMALL, gathered

CONTENT = bytes(range(251)) * 1000
LENGTHS = st.one_of(st.integers(1, 300), st.integers(SMALL - 1, SMALL + 1), st.integers(MOST, MOST + 10))
PIECES = st.lists(st.one_of(st.binary(max_size=20), st.tuples(st.integers(0, 1000), LENGTHS)), max_size=12)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> OpenFile:
    path: Path = tmp_path_factory.mktemp("gather") / "segment"
    path.write_bytes(CONTENT)
    return OpenFile(str(path))


def _bytes(pieces: list[bytes | FileSlice]) -> bytes:
    return b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in pieces)


@given(drawn=PIECES)
def test_they_are_the_same_bytes(file: OpenFile, drawn: list[bytes | tuple[int, int]]) -> None:
    pieces = [one if isinstance(one, bytes) else FileSlice(file, *one) for one in drawn]
    found = gathered(list(pieces))
    assert _bytes(found) == _bytes(pieces)
    assert not any(_is_bytes(one) and _is_bytes(two) for one, two in itertools.pairwise(found))
    assert [one for one in found if not _is_bytes(one)] == [
        one for one in pieces if one in found and not _is_bytes(one)
    ]
    large = [one for one in pieces if isinstance(one, FileSlice) and one.size > SMALL]
    assert all(one in found for one in large)
    read = sum(one.size for one in pieces if isinstance(one, FileSlice) and one not in found)
    assert read <= MOST


def _is_bytes(piece: object) -> bool:
    return isinstance(piece, bytes)


def test_an_answer_with_few_records_is_one_piece(file: OpenFile) -> None:
    assert gathered([b"head", FileSlice(file, 3, 270), b"\0\0\0"]) == [b"head" + CONTENT[3:273] + b"\0\0\0"]


def test_a_file_that_is_shorter_than_published_is_told(file: OpenFile) -> None:
    with pytest.raises(EOFError):
        gathered([b"head", FileSlice(file, len(CONTENT) - 10, 20)])
