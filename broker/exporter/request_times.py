"""Reads the histograms of all workers, summed by API and stage (ipc.latencies).

Percentiles are of the last minutes, as those of Kafka's MBeans: the difference to an earlier reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.ipc import latencies
from odradek.ipc.latencies import AT_ONCE, KEYS, LOCAL, SEND, STAGES, SUM, THROTTLE, TOTAL, WORDS
from odradek.ipc.region import RegionError
from odradek.workers.apis import table

_SHORTEST = 10  # the first bucket ends at 2^10 ns
_LONGEST = 40  # the last one with an end at 2^40 ns, 18 minutes
PERIOD_S = 60.0
_PERIODS = 5
_SHAPE = (KEYS, len(STAGES), WORDS)
Counts = NDArray[np.int64]


class Histogram(NamedTuple):
    """One stage of an API's requests. `ends`: a bucket's end in seconds, and how many requests took less than that."""

    api: str
    ends: list[tuple[float, int]]
    requests: int
    seconds: float


class RequestTimes:
    """The histograms of a broker's workers: `counts` by API key, stage and word, as of the last `follow`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names = table.names()
        self._regions: dict[int, memoryview] = {}
        self._kept: deque[tuple[float, Counts]] = deque(maxlen=_PERIODS)
        self._none = np.zeros((KEYS, 2), np.int64)  # throttle times and times to send of 0
        self.counts = _none()

    def follow(self, now: float, workers: Iterable[int]) -> None:
        """Read those of these roles; keep a reading a minute for `recent`."""
        self.counts = sum((self._words(role) for role in workers), _none())
        self.counts[:, (LOCAL, TOTAL)] += self.counts[:, AT_ONCE, np.newaxis]
        self._count_none()
        if not self._kept or now - self._kept[-1][0] >= PERIOD_S:
            self._kept.append((now, self.counts))

    def _count_none(self) -> None:
        """Count a throttle time and a time to send of 0 for each request that the worker counted none for.

        Answers that are being sent are among these until they are sent. But no count may fall: for Prometheus that is
        a new start. So the largest one stays, and is too large by as many answers at most as were ever sent at once.
        """
        requests = self.counts[:, TOTAL, :SUM].sum(axis=1, keepdims=True)
        some = self.counts[:, (THROTTLE, SEND), :SUM].sum(axis=2)
        self._none = np.maximum(self._none, requests - some)
        self.counts[:, (THROTTLE, SEND), 0] += self._none

    def _words(self, role: int) -> Counts:
        if role not in self._regions:
            try:
                self._regions[role] = latencies.read(self._prefix, role)
            except RegionError:  # the worker starts, or could not create it
                return _none()
        return np.frombuffer(self._regions[role], np.int64).reshape(_SHAPE)

    def whole(self, stage: int) -> Iterator[Histogram]:
        """The histograms of one stage, since the broker started, of each API that had a request."""
        return self._histograms(self.counts[:, stage])

    def recent(self, stage: int) -> Iterator[Histogram]:
        """The same for the last minutes."""
        return self._histograms((self.counts - self._kept[0][1])[:, stage])

    def _histograms(self, counts: Counts) -> Iterator[Histogram]:
        for key in np.flatnonzero(counts[:, :SUM].any(axis=1)).tolist():
            below = np.cumsum(counts[key, :SUM])
            ends = [(2**n / 1e9, int(below[n])) for n in range(_SHORTEST, _LONGEST + 1)]
            yield Histogram(self._names.get(key, str(key)), ends, int(below[-1]), int(counts[key, SUM]) / 1e9)


def _none() -> Counts:
    return np.zeros(_SHAPE, np.int64)


def quantile(histogram: Histogram, share: float) -> float:
    """The time in seconds that this share of the requests did not exceed: within a bucket by interpolation."""
    wanted, begin, before = share * histogram.requests, 0.0, 0
    for end, below in histogram.ends:
        if below >= wanted > before:
            return begin + (end - begin) * (wanted - before) / (below - before)
        begin, before = end, below
    return begin
