"""The offset map and its hashes against a dictionary."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.compaction import offset_map
from odradek.storage.compaction.key_hashes import SHORT, Hashes, KeyHasher, packed
from odradek.storage.compaction.offset_map import ENTRY_BYTES, OffsetMap

KEYS = st.lists(st.binary(max_size=12) | st.sampled_from([b"a", b"b", b"c", b"x" * SHORT, b"x" * (SHORT + 1)]))
# Nothing at all, zeros, zeros at the end, and both sides of each bound of the words.
ODD = (
    st.builds(bytes, st.integers(0, 2 * SHORT))
    | st.builds(lambda start, zeros: start + bytes(zeros), st.binary(max_size=3), st.integers(0, SHORT + 1))
    | st.sampled_from([bytes([one]) * size for one in (0, 1, 255) for size in (0, 1, 7, 8, 9, 63, 64, 65, 72)])
)
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


def test_each_key_has_another_hash_in_each_pass() -> None:
    """Not even one without bytes, which a sum over its words alone makes 0."""
    found = [KeyHasher().of(*packed([b""])) for _ in range(20)]
    assert len({int(one.first[0]) for one in found}) == len(found)


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
    deleted = {int(offset) for offset, (_, gone, _) in zip(offsets, rows, strict=True) if gone}
    if len(offsets):
        found, gone = made.latest_among(offsets)
        assert offsets[found].tolist() == sorted(last.values())
        assert offsets[gone].tolist() == sorted(deleted & set(last.values()))
        apart = np.array([offsets[0], offsets[0] + 10_000_000, offsets[0] + 20_000_000])
        assert made.latest_among(apart)[0].tolist() == [int(offsets[0]) in last.values(), False, False]
    asked = [b"", b"never put in", *last]
    assert made.has(hasher.of(*packed(asked))).tolist() == [key in last for key in asked]


@given(st.lists(ODD, unique=True, min_size=1, max_size=80), st.integers(1, 3), st.integers(0, 5))
def test_odd_keys_against_a_dictionary(keys: list[bytes], rounds: int, spare: int) -> None:
    """In a map with no more room than for them, each key some times."""
    hasher, made = KeyHasher(), OffsetMap(ENTRY_BYTES * (len(keys) + 1 + spare), 0.99)
    written = keys * rounds
    taken = made.put(hasher.of(*packed(written)), np.arange(len(written)), np.zeros(len(written), bool))
    last = {key: offset for offset, key in enumerate(written[:taken])}
    assert (taken, len(made)) == (len(written), len(keys)) or made.full
    made.freeze()
    assert made.latest_among(np.arange(len(written)))[0].nonzero()[0].tolist() == sorted(last.values())
    never = [b"\1never", *(key + b"\0\1" for key in keys)]
    asked = keys + [key for key in never if key not in keys]
    assert made.has(hasher.of(*packed(asked))).tolist() == [key in last for key in asked]


@pytest.mark.parametrize("seed", range(50))
def test_a_key_without_bytes_in_a_map_that_is_nearly_full(seed: int) -> None:
    """It is put in last, when its first places are taken; the test looks it up where it is and where it is not."""
    rng = random.Random(seed)
    slots = rng.choice((2, 3, 10, 100, 1000))
    others = [b"%d" % rng.getrandbits(64) for _ in range(max(1, int(slots * 0.99)) - 1)]
    for keys in ([*others, b""], [b"", *others], [*others, b"another"]):
        hasher, made = KeyHasher(), OffsetMap(ENTRY_BYTES * slots, 0.99)
        assert made.put(hasher.of(*packed(keys)), np.arange(len(keys)), np.zeros(len(keys), bool)) == len(keys)
        made.freeze()
        assert made.has(hasher.of(*packed([b"", *others]))).tolist() == [b"" in keys, *[True] * len(others)]


@given(st.integers(2, 50), st.lists(st.sampled_from([0, 1, 1 << 32, (1 << 64) - 1]), max_size=50), st.booleans())
def test_lookup_ends_whatever_the_hashes_are(slots: int, words: list[int], scattered: bool) -> None:
    """Also hashes for which `_next` returns to the start, such as 0: another word distinguishes the keys."""
    first = np.array(words[: slots - 1], np.uint64)
    hashes = Hashes(first, np.arange(len(first), dtype=np.uint64) << np.uint64(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_map, "_SCATTERED", 3 if scattered else 0)
        made = OffsetMap(ENTRY_BYTES * slots, 0.99)
        taken = made.put(hashes, np.arange(len(first)), np.zeros(len(first), bool))
        assert taken == len(first) or made.full
        made.freeze()
        assert made.has(hashes).tolist() == [index < taken for index in range(len(first))]


@pytest.mark.parametrize("slots", [2, 3, 7, 100])
def test_map_refuses_keys_when_it_is_full(slots: int) -> None:
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
