"""The offset map and its hashes against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek.storage.key_hashes import SHORT, KeyHasher, packed
from odradek.storage.offset_map import ENTRY_BYTES, OffsetMap

KEYS = st.lists(st.binary(max_size=12) | st.sampled_from([b"a", b"b", b"c", b"x" * SHORT, b"x" * (SHORT + 1)]))
ROWS = st.lists(st.tuples(st.binary(max_size=2), st.booleans(), st.integers(1, 3)), max_size=60)


@given(KEYS)
def test_keys_have_the_same_hash_when_they_are_the_same(keys: list[bytes]) -> None:
    hasher = KeyHasher()
    found = hasher.of(*packed(keys))
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert len(set(pairs)) == len(set(keys))
    assert len(set(zip(pairs, keys, strict=True))) == len(set(keys))
    alone = [hasher.of(*packed([key])) for key in keys]
    assert [(int(one.first[0]), int(one.second[0])) for one in alone] == pairs


def test_zeros_at_the_end_of_a_key_count() -> None:
    keys = [bytes(size) for size in range(2 * SHORT)]
    found = KeyHasher().of(*packed(keys))
    assert len(set(found.first.tolist())) == len(keys)


def test_another_pass_has_other_hashes() -> None:
    keys = packed([b"key", b"k" * 100])
    first, second = KeyHasher().of(*keys), KeyHasher().of(*keys)
    assert not (first.first == second.first).any()


@given(ROWS, st.lists(st.integers(1, 20)), st.sampled_from([0.5, 0.9, 1.0]))
def test_against_a_dictionary(rows: list[tuple[bytes, bool, int]], cuts: list[int], load: float) -> None:
    """In pieces of any size; offsets have gaps."""
    hasher, made = KeyHasher(), OffsetMap(ENTRY_BYTES * 2000, load)
    offsets = np.cumsum([gap for _, _, gap in rows], dtype=np.int64)
    last: dict[bytes, int] = {}
    at = 0
    for cut in [*cuts, len(rows)]:
        some = rows[at : at + cut]
        where = offsets[at : at + len(some)]
        tombstones = np.array([gone for _, gone, _ in some], bool)
        assert made.put(hasher.of(*packed([key for key, _, _ in some])), where, tombstones) == len(some)
        last.update(zip([key for key, _, _ in some], where.tolist(), strict=True))
        at += cut
        if at >= len(rows):
            break
    made.freeze()
    assert len(made) == len(last)
    tombstones = {int(offset) for offset, (_, gone, _) in zip(offsets, rows, strict=True) if gone}
    if len(offsets):
        found, gone = made.latest_among(offsets)
        assert offsets[found].tolist() == sorted(last.values())
        assert offsets[gone].tolist() == sorted(tombstones & set(last.values()))
        apart = np.array([offsets[0], offsets[0] + 10_000_000, offsets[0] + 20_000_000])
        assert made.latest_among(apart)[0].tolist() == [int(offsets[0]) in last.values(), False, False]
    asked = [b"", b"never put in", *last]
    assert made.has(hasher.of(*packed(asked))).tolist() == [key in last for key in asked]


@pytest.mark.parametrize("slots", [2, 3, 7, 100])
def test_it_takes_what_it_has_room_for(slots: int) -> None:
    hasher, made = KeyHasher(), OffsetMap(ENTRY_BYTES * slots, 0.9)
    keys = [b"%d" % number for number in range(2 * slots)]
    offsets, none = np.arange(len(keys)), np.zeros(len(keys), bool)
    taken = made.put(hasher.of(*packed(keys)), offsets, none)
    assert 0 < int(0.9 * slots) <= taken < slots + 1
    assert made.full
    assert made.put(hasher.of(*packed(keys)), offsets + len(keys), none) == 0
    made.freeze()
    assert made.has(hasher.of(*packed(keys))).tolist() == [number < taken for number in range(len(keys))]


def test_keys_written_again_and_again_take_one_place() -> None:
    hasher, made = KeyHasher(), OffsetMap(ENTRY_BYTES * 4, 0.9)
    hashes = hasher.of(*packed([b"a", b"b"] * 5000))
    assert made.put(hashes, np.arange(10_000), np.zeros(10_000, bool)) == 10_000
    made.freeze()
    assert (len(made), made.latest_among(np.arange(10_000))[0].nonzero()[0].tolist()) == (2, [9998, 9999])


def test_no_more_memory_than_the_records_could_fill() -> None:
    assert len(OffsetMap(1 << 40, 0.9, 10)._entries) == 13
    assert len(OffsetMap(ENTRY_BYTES * 50, 0.9, 1 << 60)._entries) == 50
