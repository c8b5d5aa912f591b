"""The check of records by columns agrees with a read of each record: sound or damaged, in any memory."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.records import batch_v2, columns, varint
from odradek.protocol.records.batch_v2 import Headers, Record
from odradek.protocol.records.errors import RecordError

from .strategies import NOW, mixed, record_lists

MEMORIES: dict[str, Callable[[int], bytearray | mmap.mmap]] = {
    "bytearray": bytearray,
    "mmap": lambda size: mmap.mmap(-1, size),
}
BEFORE, BEHIND = b"\x02", b"\x0c\0\0\0\1\1\0"


def said(body: bytes | bytearray, count: int, span: int) -> bool:
    """The result of the check by columns, which is equal in each kind of memory, and at its end."""
    found = set()
    for make in MEMORIES.values():
        for behind in (BEHIND, b""):
            at, end = len(BEFORE), len(BEFORE) + len(body)
            data = make(max(end + len(behind), 1))
            data[: end + len(behind)] = BEFORE + body + behind
            found.add(columns.are_sound(data, at, end, count, span))
    assert len(found) == 1
    return found.pop()


def truth(body: bytes, count: int, span: int) -> bool:
    """The result of a read record by record."""
    head = batch_v2.Header(0, 0, 0, 2, 0, 0, count - 1, NOW, NOW + span, -1, -1, -1, count)
    try:
        found = batch_v2.scan(body, head)
    except RecordError:
        return False
    return found.dense and found.max_timestamp == NOW + span


def encoded(records: list[Record]) -> tuple[bytes, int, int]:
    """The records with timestamps from NOW on as bytes, their number, and their span of time."""
    body, span = batch_v2.encode_records(records, 0)
    assert span.base_timestamp == NOW
    return body, span.num_records, span.max_timestamp - NOW


def alike(
    count: int, size: int = 20, key: int = -1, step: Callable[[int], int] = lambda n: 0, headers: Headers = ()
) -> list[Record]:
    """Records of one shape; those from `size` on are the bytes of values."""
    value, name = b"v" * size, None if key < 0 else b"k" * key
    return [(n, NOW + (step(n) if n else 0), name, value, headers) for n in range(count)]


STEPS: dict[str, Callable[[int], int]] = {
    "one time": lambda n: 0,
    "rising": lambda n: n // 3,
    "each its own": lambda n: n,
    "falling": lambda n: -n,
    "up and down": lambda n: (n * 37) % 60 - 30,
    "far up and down": lambda n: (n * 3701) % 12_000 - 6_000,
    "not in order, two bytes": lambda n: 64 + (n * 371) % 8000,
    "days": lambda n: n * 86_400_000,
    "back from far": lambda n: 9_000 - n,
}


@pytest.mark.parametrize("count", [1, 2, 5, 6, 50, 64, 65, 70, 8191, 8193, 9000])
@pytest.mark.parametrize("step", STEPS)
def test_records_of_one_shape_are_sound_only_with_the_right_count_and_span(count: int, step: str) -> None:
    body, count, span = encoded(alike(count, step=STEPS[step]))
    assert truth(body, count, span)
    assert said(body, count, span)
    assert not said(body, count, span + 1)
    assert not said(body, count, span - 1)
    assert not said(body, count + 1, span)
    assert not said(body, count - 1, span)
    assert not said(body[:-1], count, span)
    assert not said(body + b"\0", count, span)


SIZES = [0, 1, 5, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 100, 8180, 8190, 8192, 20_000]


@pytest.mark.parametrize("key", [-1, 0, 1, 63, 64, 9000])
def test_records_with_lengths_at_varint_boundaries_are_sound(key: int) -> None:
    for size in SIZES:
        for count in (1, 40):
            body, count, span = encoded(alike(count, size, key))
            assert said(body, count, span), (size, count)
            assert not said(body, count, span - 1), (size, count)


def test_single_record_of_every_size_is_checked() -> None:
    for size in range(300):
        body = bytearray(encoded(alike(1, size))[0])
        assert said(body, 1, 0), size
        body[-1] = 1
        assert not said(body, 1, 0), size
        assert not said(bytes(size), 1, 0)


def test_records_with_headers_nulls_and_many_lengths_are_sound() -> None:
    rows = [(n, NOW if n == 0 else time, k, v, pairs) for n, time, k, v, pairs in mixed(300)]
    assert said(*encoded(rows))
    assert said(*encoded(alike(100, headers=((b"h", b"1"), (b"", None)))))
    assert said(*encoded([(n, NOW, None, None, ()) for n in range(100)]))


def test_records_of_successive_shapes_are_sound() -> None:
    rows: list[Record] = []
    for size, count in ((10, 30), (11, 3), (5000, 30), (10, 90), (9000, 8), (0, 40)):
        rows += [(len(rows) + n, NOW, None, b"v" * size, ()) for n in range(count)]
    assert said(*encoded(rows))


def test_shapes_with_equal_first_bytes_are_told_apart() -> None:
    """Records are equally long with keys of other lengths; each shape follows each other one, sound and damaged."""
    bodies = [encoded(alike(20, 30 - max(key, 0), key)) for key in (-1, 0, 5, 30)]
    assert len({body[:4] for body, _, _ in bodies}) == 1
    for first in bodies:
        for second in bodies:
            assert said(*first)
            assert said(*second)
            body, count, span = second
            at = len(body) - len(body) // count + 4
            assert not said(body[:at] + b"\x40" + body[at + 1 :], count, span)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_padded_varints_are_sound_up_to_javas_limit(count: int) -> None:
    """Java does not write padded varints, but reads them: up to five bytes for a number of 32 bits."""
    for place in range(5):
        for longer in (2, 3, 5, 6):
            rows = []
            for n in range(count):
                numbers = [varint.encode(number) for number in (0, n, -1, 3)]
                if place:
                    numbers[place - 1] = _padded(numbers[place - 1], longer)
                rest = b"\0" + b"".join(numbers) + b"abc\0"
                length = varint.encode(len(rest))
                rows.append((length if place else _padded(length, longer)) + rest)
            body = b"".join(rows)
            sound = longer < 6 or place == 1
            assert truth(body, count, 0) == said(body, count, 0) == sound, (place, longer)


def _padded(number: bytes, size: int) -> bytes:
    if size <= len(number):
        return number
    return bytes((*(byte | 128 for byte in number), *[128] * (size - len(number) - 1), 0))


@pytest.mark.parametrize("change", ["length", "attributes", "time", "offset", "key", "value", "headers"])
@pytest.mark.parametrize("which", [0, 1, 40, 63, 64, 99])
def test_any_value_of_one_byte_is_judged_as_by_a_read(change: str, which: int) -> None:
    """Each value for each byte of the numbers in one of a hundred records of one shape."""
    body, count, span = encoded(alike(100, 30, key=2))
    sizes = [len(encoded(alike(n + 1, 30, key=2))[0]) for n in range(which)][-1:] or [0]
    offset = 1 if which < 64 else 2
    places = {
        "length": 0, "attributes": 1, "time": 2, "offset": 3, "key": 3 + offset, "value": 6 + offset, "headers": -1,
    }  # fmt: skip
    size = len(encoded(alike(which + 1, 30, key=2))[0]) - sizes[0]
    at = sizes[0] + places[change] % size
    answers = set()
    for value in range(256):
        changed = bytearray(body)
        changed[at] = value
        answer = said(bytes(changed), count, span)
        assert answer == truth(bytes(changed), count, span), value
        answers.add(answer)
    assert answers == ({True} if change == "attributes" else {True, False})


@given(records=record_lists(gaps=False, base=0))
def test_valid_records_are_sound(records: list[Record]) -> None:
    body, head = batch_v2.encode_records(records, 0)
    assert said(body, head.num_records, head.max_timestamp - head.base_timestamp)


@given(records=record_lists(base=0))
def test_records_with_gaps_between_offsets_are_unsound(records: list[Record]) -> None:
    body, head = batch_v2.encode_records(records, 0)
    dense = head.last_offset_delta == head.num_records - 1
    assert said(body, head.num_records, head.max_timestamp - head.base_timestamp) == dense


@given(
    shapes=st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90), st.integers(-1, 70)), min_size=1, max_size=3),
    step=st.sampled_from(sorted(STEPS)),
    rng=st.randoms(use_true_random=False),
    changes=st.integers(1, 4),
)
def test_damaged_records_are_judged_as_by_a_read(
    shapes: list[tuple[int, int, int]], step: str, rng: random.Random, changes: int
) -> None:
    """Bytes are changed, removed and inserted."""
    rows: list[Record] = []
    for count, size, key in shapes:
        name = None if key < 0 else b"k" * key
        rows += [
            (n, NOW + (STEPS[step](n) if n else 0), name, b"\0" * size, ()) for n in range(len(rows), len(rows) + count)
        ]
    body, count, span = encoded(rows)
    damaged = bytearray(body)
    for _ in range(changes):
        at = rng.randrange(len(damaged))
        match rng.randrange(4):
            case 0:
                del damaged[at : at + rng.choice((1, 7))]
            case 1:
                damaged[at:at] = bytes((rng.randrange(256),))
            case _:
                damaged[at] = rng.choice((0, 1, 2, 127, 128, 255, damaged[at] ^ 1, (damaged[at] + 2) & 255))
    count += rng.choice((0, 0, 0, 1, -1))
    assert said(bytes(damaged), count, span) == (count > 0 and truth(bytes(damaged), count, span))


@given(body=st.binary(max_size=200), count=st.integers(1, 20), span=st.integers(-1, 3))
def test_random_bytes_are_judged_as_by_a_read(body: bytes, count: int, span: int) -> None:
    assert said(body, count, span) == truth(body, count, span)


def test_only_the_lowest_timestamp_delta_is_unsound() -> None:
    """The check does not see the base timestamp, so it refuses the lowest delta that can be written."""
    for timestamp, right in ((batch_v2.LATEST, True), (batch_v2.LATEST + 1, False)):
        body, delta = _single(timestamp - NOW)
        assert said(body, 1, delta)  # the header has another largest timestamp, which fits 64 bits
        assert truth(body, 1, delta) == right
    body, delta = _single(batch_v2.EARLIEST)
    assert not said(body, 1, delta)


def _single(delta: int) -> tuple[bytes, int]:
    rest = b"\0" + varint.encode(delta) + b"\0\1\1\0"
    return varint.encode(len(rest)) + rest, delta


def test_no_records_are_unsound() -> None:
    assert not said(b"", 1, 0)
    assert not said(b"", 0, 0)
