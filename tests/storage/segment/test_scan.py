import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.segment.scan import Scan, find_batch_after
from tests.storage.logs import batch, message, run_of_batches

Opened = Callable[[bytes], int]
"""Writes the content into a file, and opens it."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    fds: list[int] = []

    def write(content: bytes) -> int:
        path = tmp_path / f"{len(fds)}.log"
        path.write_bytes(content)
        fds.append(os.open(path, os.O_RDONLY))
        return fds[-1]

    yield write
    for fd in fds:
        os.close(fd)


def test_what_a_header_says(opened: Opened) -> None:
    raw = batch(100, 3, timestamp=77, epoch=5, producer=(9, 2, 40), attributes=0x10)
    (found,) = Scan(opened(raw))
    assert found == (0, len(raw), 102, 100, len(raw) - 12, 5, 2, found.crc, 0x10, 2, 77, 77, 9, 2, 40, 3)


def test_old_messages_and_new_batches_in_one_file(opened: Opened) -> None:
    parts = [message(0, 0), message(1, 1, timestamp=5), batch(2, 2), message(9, 1, timestamp=8)]
    found = list(Scan(opened(b"".join(parts))))
    assert [b.magic for b in found] == [0, 1, 2, 1]
    assert [(b.base_offset, b.last_offset) for b in found] == [(0, 0), (1, 1), (2, 3), (9, 9)]
    assert [b.max_timestamp for b in found] == [-1, 5, 1000, 8]
    assert [b.size for b in found] == [len(p) for p in parts]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("size", [1, 200, 5000, 70_000, 1_500_000])
def test_batches_of_any_size_cross_the_buffer(opened: Opened, check: bool, size: int) -> None:
    parts = [batch(i, size=size + i % 13) for i in range(max(3, 3_000_000 // (size + 70)))]
    scan = Scan(opened(b"".join(parts)), check=check)
    for raw, found in zip(parts, scan, strict=True):
        assert found.size == len(raw)
        if found.base_offset % 7 == 0:
            assert scan.payload() == raw
    assert scan.bad is None


@pytest.mark.parametrize("keep", [0, 1, 11, 12, 17, 60, 61, 100])
def test_a_torn_tail(opened: Opened, keep: int) -> None:
    good, torn = run_of_batches(0, 3), batch(3, size=100)
    fd = opened(b"".join(good) + torn[:keep])
    scan = Scan(fd)
    assert len(list(scan)) == 3
    assert scan.position == sum(map(len, good))
    assert (scan.bad is None) == (keep == 0)
    assert find_batch_after(fd, scan.position, os.fstat(fd).st_size, 3) is None


def test_zeros_of_a_preallocated_log(opened: Opened) -> None:
    good = run_of_batches(0, 3)
    fd = opened(b"".join(good) + bytes(5_000_000))
    scan = Scan(fd)
    assert len(list(scan)) == 3
    assert scan.bad == (sum(map(len, good)), "zeros")
    assert find_batch_after(fd, scan.position, 5_000_000, 3) is None


@pytest.mark.parametrize("header_too", [False, True])
def test_corrupt_middle_differs_from_a_torn_tail(opened: Opened, header_too: bool) -> None:
    parts = [batch(i, size=300) for i in range(5)]
    broken = bytearray(parts[2])
    broken[-3] ^= 1
    if header_too:  # the length cannot lead on to the next batch
        broken[:40] = os.urandom(40)
    fd = opened(b"".join([*parts[:2], broken, *parts[3:]]))
    scan = Scan(fd)
    assert [b.base_offset for b in scan] == [0, 1]
    assert scan.bad is not None
    assert find_batch_after(fd, scan.position, scan.end, 2) == sum(map(len, parts[:3]))


def test_old_messages_after_a_broken_one_are_found_too(opened: Opened) -> None:
    broken = bytearray(message(1))
    broken[-1] ^= 1
    fd = opened(message(0) + broken + message(2))
    scan = Scan(fd)
    assert len(list(scan)) == 1
    assert find_batch_after(fd, scan.position, scan.end, 1) == 2 * len(message(0))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_after_a_page_of_zeros_are_found_too(opened: Opened, magic: int) -> None:
    """No length leads on to them."""
    whole = b"".join(message(offset, magic, value=b"v" * 300) for offset in range(100))
    fd = opened(whole[:8192] + bytes(4096) + whole[12288:])
    scan, size = Scan(fd), len(message(0, magic, value=b"v" * 300))
    assert len(list(scan)) == 8192 // size
    assert scan.bad is not None
    assert find_batch_after(fd, scan.position, scan.end, 8192 // size) == -(-12288 // size) * size


def test_an_intact_batch_far_behind_the_damage_is_found(opened: Opened) -> None:
    rubbish = os.urandom(3 << 20)
    fd = opened(batch(0) + rubbish + batch(9))
    scan = Scan(fd)
    list(scan)
    assert find_batch_after(fd, scan.position, scan.end, 1) == len(batch(0)) + len(rubbish)


@pytest.mark.parametrize("offsets", [(0, 0), (5, 4), (5, 3)])
def test_offsets_must_rise(opened: Opened, offsets: tuple[int, int]) -> None:
    scan = Scan(opened(b"".join(batch(o) for o in offsets)))
    assert len(list(scan)) == 1
    assert scan.bad is not None
    assert "comes after" in scan.bad.reason


def test_first_offset_below_the_minimum_is_refused(opened: Opened) -> None:
    scan = Scan(opened(batch(4)), least_offset=5)
    assert list(scan) == []
    assert scan.bad is not None


@settings(max_examples=300)
@given(st.data())
def test_every_flipped_bit_that_the_checksum_covers_is_seen(data: st.DataObject) -> None:
    raw = bytearray(batch(7, 2, size=20))
    bit = data.draw(st.integers(16 * 8, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    fd = os.memfd_create("segment")
    try:
        os.write(fd, raw)
        scan = Scan(fd)
        assert list(scan) == []
        assert scan.bad is not None
    finally:
        os.close(fd)


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_rubbish_never_raises(content: bytes) -> None:
    fd = os.memfd_create("segment")
    try:
        os.write(fd, batch(0) + content)
        for check in (True, False):
            assert next(iter(Scan(fd, check=check))).base_offset == 0
            list(Scan(fd, check=check))
    finally:
        os.close(fd)


def test_a_small_read_is_continued(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:37]], at))
    parts = [batch(i, size=500) for i in range(20)]
    assert len(list(Scan(opened(b"".join(parts))))) == 20
