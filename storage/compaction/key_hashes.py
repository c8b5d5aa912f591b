"""128-bit hashes of many keys at once.

A key of up to SHORT bytes becomes 32-bit words, padded with zeros, and its length plus one as another word: that word
is never 0, so that no key, not even an empty one, has a predictable hash. Each of four lanes is
(Σ word × multiplier) mod 2^64 and uses its upper 32 bits: the multilinear family of Carter and Wegman, strongly
universal (Lemire and Kaser, "Strongly universal string hashing is fast", 2014). Two different keys collide in one lane
with a probability of 2^-32, in all four with 2^-128, if they were chosen without knowledge of the multipliers. These
come from the system's random numbers for each pass and never leave the process, so a producer of keys made to collide
has the same probability as any other. Among the 5 million keys of a full map the probability of any collision is below
2^-83. Longer keys are hashed one by one with BLAKE2b under a random key.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from odradek.protocol import digests

SHORT = 64
_LANES = 4
_WORD = 8  # bytes read at once
_SHIFT = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Hashes(NamedTuple):
    """Two words of 64 bits for each key."""

    first: np.ndarray
    second: np.ndarray

    def only(self, chosen: np.ndarray | slice) -> Hashes:
        return Hashes(self.first[chosen], self.second[chosen])


class KeyHasher:
    """A hasher with its own random multipliers: hashes of different instances are not comparable."""

    def __init__(self) -> None:
        words = 2 * SHORT // _WORD + 1
        self._multipliers = np.frombuffer(os.urandom(words * _LANES * 8), np.uint64).reshape(words, _LANES)
        self._key = os.urandom(32)

    def of(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> Hashes:
        """The hashes of the keys data[at : at + size]; `data` has at least 8 more bytes after the last one."""
        hashes = self._short(data, at, np.minimum(sizes, SHORT))
        for index in np.flatnonzero(sizes > SHORT).tolist():
            start = int(at[index])
            digest = digests.blake2b(data[start : start + int(sizes[index])].tobytes(), 16, self._key)
            hashes.first[index], hashes.second[index] = np.frombuffer(digest, np.uint64)
        return hashes

    def _short(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> Hashes:
        words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
        lanes = [(sizes + 1).view(np.uint64) * multiplier for multiplier in self._multipliers[-1]]
        for index in range(-(-int(sizes.max(initial=0)) // _WORD)):
            left = sizes - index * _WORD
            some = None if left.min() > 0 else np.flatnonzero(left > 0)
            self._add(lanes, words, index, at, left, some)
        return Hashes(_joined(lanes[0], lanes[1]), _joined(lanes[2], lanes[3]))

    def _add(
        self, lanes: list[np.ndarray], words: np.ndarray, index: int, at: np.ndarray, left: np.ndarray,
        some: np.ndarray | None,
    ) -> None:  # fmt: skip
        """Add word `index` of all keys, or of those that have one."""
        if some is not None:
            at, left = at[some], left[some]
        word = words[at + index * _WORD]
        if left.min() < _WORD:
            unused = (_WORD - np.minimum(left, _WORD)).astype(np.uint64) << np.uint64(3)
            word = word << unused >> unused
        low, high = word & _LOW, word >> _SHIFT
        for lane, (one, other) in enumerate(self._multipliers[2 * index : 2 * index + 2].T):
            if some is None:
                lanes[lane] += low * one
                lanes[lane] += high * other
            else:
                lanes[lane][some] += low * one + high * other


def _joined(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one & ~_LOW) | (other >> _SHIFT)


def packed(keys: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(data, at, sizes) of `keys` for `KeyHasher.of`."""
    sizes = np.array([len(key) for key in keys], np.int64)
    return np.frombuffer(b"".join(keys) + bytes(_WORD), np.uint8), np.cumsum(sizes) - sizes, sizes
