"""The samples that the console shows, and what is computed of them once for all that look.

Owner: the exporter process. A sample is at most SAMPLE_S old; none is taken while the console is not open, and not more
than one a second by however many readers: scrapes wait for one at most.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter import sample_faults
from odradek.broker.exporter.group_lag import Lag
from odradek.broker.exporter.growth import Rates, growth
from odradek.broker.exporter.layout import Layout
from odradek.broker.exporter.scrape import Sample, Scraper
from odradek.broker.findings.findings import Finding
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import slots
from odradek.ipc.shm import Shared

SAMPLE_S = 1.0
RATES_S = 30.0  # a former sample that is older says nothing about now


class TopicIndex:
    """All topics of the cluster in order of their names, and of each partition on this broker the number of its topic.

    `starts`: for each topic the number of its first partition here.
    """

    def __init__(self, layout: Layout, snapshot: Snapshot) -> None:
        self.layout, self.snapshot = layout, snapshot
        self.names = sorted(snapshot.topics)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.partitions = [len(snapshot.topics[name]) for name in self.names]
        self.of = np.array([self.number[name] for name, _ in layout.names], np.int64)

    def sums(self, values: NDArray[np.generic]) -> list[float]:
        """A sum for each topic."""
        found: list[float] = np.bincount(self.of, values.astype(np.float64), len(self.names)).tolist()
        return found

    def of_topic(self, number: int) -> list[int]:
        """The partitions of one topic, as positions in the layout."""
        found: list[int] = np.flatnonzero(self.of == number).tolist()
        return found


class Moment:
    """The broker at one moment, and its rates since the moment before."""

    def __init__(self, former: Sample, sample: Sample, seconds: float, index: TopicIndex, found: list[Finding]) -> None:
        self.former, self.sample, self.seconds = former, sample, seconds
        self.index, self.findings = index, found

    @cached_property
    def growth(self) -> tuple[Rates, Rates]:
        """Records and bytes a second of each partition."""
        return growth(self.former, self.sample, self.seconds)

    @cached_property
    def topics(self) -> dict[str, list[float]]:
        """The columns of the table of topics."""
        sample, sums = self.sample, self.index.sums
        records, size = self.growth
        kept = sample.column(slots.F_LEO) - sample.column(slots.F_LOG_START)
        empty = np.zeros(len(sample.layout.names))
        return {
            "partitions": [float(each) for each in self.index.partitions],
            "here": sums(np.ones(len(sample.layout.names))),
            "led": sums(sample.leads),
            "under_replicated": sums(sample.under_replicated),
            "offline": sums(sample.in_state(slots.OFFLINE)),
            "records": sums(kept),
            "bytes": sums(empty if sample.log_bytes is None else sample.log_bytes),
            "records_s": sums(records),
            "bytes_s": sums(size),
        }

    @cached_property
    def lags(self) -> dict[str, list[Lag]]:
        """The lag of each group, in the order of their names; groups without offsets too."""
        found: dict[str, list[Lag]] = defaultdict(list)
        for one in self.sample.lags:
            found[one.group].append(one)
        return {name: found.get(name, []) for name in sorted({*found, *self.sample.members})}


class Moments:
    """Takes samples for those who look."""

    def __init__(self, scraper: Scraper, turn: asyncio.Lock, config: BrokerConfig, shared: Shared) -> None:
        """`turn`: held while the scraper is used."""
        self._scraper, self._turn, self._config, self._shared = scraper, turn, config, shared
        self._last: tuple[float, Moment] | None = None
        self._index: TopicIndex | None = None

    async def now(self) -> Moment:
        """The last moment, or a new one."""
        async with self._turn:
            if self._last is None or time.monotonic() - self._last[0] >= SAMPLE_S:
                self._last = await asyncio.to_thread(self._take)
            return self._last[1]

    def _take(self) -> tuple[float, Moment]:
        sample, now = self._scraper.take(), time.monotonic()
        is_recent = self._last is not None and now - self._last[0] < RATES_S
        at, former = (self._last[0], self._last[1].sample) if self._last and is_recent else (now, sample)
        found = sample_faults.find(self._config, self._shared, sample)
        return now, Moment(former, sample, max(1e-3, now - at), self._index_of(sample), found)

    def _index_of(self, sample: Sample) -> TopicIndex:
        if self._index is None or self._index.layout is not sample.layout:
            self._index = TopicIndex(sample.layout, sample.snapshot)
        return self._index
