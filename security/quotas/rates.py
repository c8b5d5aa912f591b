"""Rates and throttle times as Kafka's metrics compute them (Rate, TokenBucket, QuotaUtils).

Times are in ms. Unlike in Kafka, a throttle time that does not fit into 32 bits is the largest that does, where Kafka's
wraps to a negative number and throttles no client.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

from odradek.protocol.wire import INT32_MAX

Words: TypeAlias = Any
"""A list of numbers, or a memoryview of whole ones."""
_COUNT, _CURRENT, _FIRST = range(3)
_SAMPLE = 3
_LAST, _VALUE = 1, 2


class Window(NamedTuple):
    """`quota.window.num` samples, the current one included, of `quota.window.size.seconds`."""

    samples: int
    width_ms: int

    @property
    def most_ms(self) -> int:
        """The longest throttle time for request time and connections: one sample."""
        return self.width_ms

    @property
    def whole_ms(self) -> int:
        """All samples: a value that old no longer counts."""
        return self.samples * self.width_ms


def throttle_ms(rate: float, bound: float, elapsed_ms: int) -> int:
    """How long nothing may happen until `rate`, measured over `elapsed_ms`, is `bound`; 0 when it is not exceeded."""
    if rate <= bound:
        return 0
    if bound <= 0:
        return INT32_MAX
    return min(rounded((rate - bound) / bound * elapsed_ms), INT32_MAX)


def rounded(value: float) -> int:
    """The nearest whole number; halves go up, as in Java."""
    return math.floor(value + 0.5) if value < INT32_MAX else INT32_MAX


class Rate:
    """The rate per second over a window. A sample begins with the first value after the former one is full.

    `words`, of `Rate.size(window)` zeros at first: the number of samples, the index of the current one, then of each
    its start, the time of its last value, and its sum. Several processes may share them under a lock: whichever ends
    between two stores, the next one goes on, and at most a value or the oldest sample is missing.
    """

    def __init__(self, window: Window, words: Words | None = None) -> None:
        self._window = window
        self._words: Words = [0] * self.size(window) if words is None else words

    @staticmethod
    def size(window: Window) -> int:
        """The number of words. There is one sample more than the window has: the oldest may reach into it in part."""
        return _FIRST + _SAMPLE * (window.samples + 1)

    def clear(self) -> None:
        """Forget all values."""
        self._words[_COUNT] = self._words[_CURRENT] = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add `value`, which may be negative to take back what did not happen."""
        words = self._words
        if not words[_COUNT]:
            self._begin(0, now_ms)
        at = _FIRST + _SAMPLE * int(words[_CURRENT])
        if now_ms - words[at] >= self._window.width_ms:
            at = self._begin((int(words[_CURRENT]) + 1) % (self._window.samples + 1), now_ms)
        words[at + _LAST] = now_ms
        words[at + _VALUE] += value

    def _begin(self, index: int, now_ms: int) -> int:
        """Make sample `index`, the oldest or a new one, the current sample."""
        words, at = self._words, _FIRST + _SAMPLE * index
        self._reset(at, now_ms)
        if index == words[_COUNT]:
            words[_COUNT] = index + 1
        words[_CURRENT] = index
        return at

    def _reset(self, at: int, now_ms: int) -> None:
        words = self._words
        words[at + _VALUE] = 0
        words[at] = words[at + _LAST] = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate now."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(self._column(_VALUE)) / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured: never less than all samples but the current one."""
        self._purge(now_ms)
        return elapsed_ms(self._window, now_ms - int(min(self._column(0))))

    def _column(self, which: int) -> Words:
        words = self._words
        return words[_FIRST + which : _FIRST + _SAMPLE * int(words[_COUNT]) : _SAMPLE]

    def _purge(self, now_ms: int) -> None:
        if not self._words[_COUNT]:
            self._begin(0, now_ms)
        expired = now_ms - self._window.whole_ms
        if min(self._column(_LAST)) <= expired:
            for at in range(_FIRST, _FIRST + _SAMPLE * int(self._words[_COUNT]), _SAMPLE):
                if self._words[at + _LAST] <= expired:
                    self._reset(at, now_ms)

    def idle(self, now_ms: int) -> bool:
        """Whether no value counts any more."""
        lasts = self._column(_LAST)
        return not len(lasts) or max(lasts) <= now_ms - self._window.whole_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The throttle time now."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return throttle_ms(sum(self._column(_VALUE)) / (elapsed_ms / 1000), bound, elapsed_ms)


def elapsed_ms(window: Window, since_oldest_ms: int) -> int:
    """The time over which a rate is measured whose oldest sample began `since_oldest_ms` ago."""
    missing = window.samples - 1 - since_oldest_ms // window.width_ms
    return max(since_oldest_ms + max(missing, 0) * window.width_ms, 1)


class TokenBucket:
    """Tokens that come at a rate up to the amount of a whole window, and may be overdrawn (KIP-599)."""

    def __init__(self, window: Window, bound: float) -> None:
        self._window_s = window.samples * (window.width_ms / 1000)
        self.bound = bound  # tokens per second; may be changed
        self._tokens = 0.0
        self._filled_ms: int | None = None

    def tokens(self, now_ms: int) -> float:
        """The tokens that there are now; fewer than 0 while it is overdrawn. A new bucket is full."""
        most = self._window_s * self.bound
        if self._filled_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + self.bound * ((now_ms - self._filled_ms) / 1000))
        self._filled_ms = now_ms
        return self._tokens

    def is_full(self, now_ms: int) -> bool:
        """Whether nothing is missing."""
        return self.tokens(now_ms) >= self._window_s * self.bound

    def take(self, count: float, now_ms: int) -> None:
        """Take tokens, whether there are as many or not."""
        most = self._window_s * self.bound
        self._tokens = min(most, self.tokens(now_ms) - count)

    def throttle_ms(self, now_ms: int) -> int:
        """The time until it is no longer overdrawn."""
        tokens = self.tokens(now_ms)
        if tokens >= 0:
            return 0
        return INT32_MAX if self.bound <= 0 else rounded(-tokens / self.bound * 1000)
