"""What clients do with each topic: the counts of all workers and of the coordinator (ipc.partition_counts), summed.

State: what was counted for partitions that have left this broker since, as long as their topics exist: the counters of
a topic must not go down when a partition moves away. Owner: the exporter process; a restart forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.broker.exporter.layout import Layout
from odradek.broker.exporter.partition_fields import Numbers
from odradek.ipc import partition_counts
from odradek.ipc.partition_counts import BEFORE, BYTES_OUT, COUNTS, HEAD, INCARNATION, REPLICATION, ROW
from odradek.ipc.region import RegionError
from odradek.ipc.slots import CHUNK

_OWN = slice(INCARNATION + 1, BEFORE)
_BEFORE = slice(BEFORE + 1, ROW)


class Traffic(NamedTuple):
    """`topics`: a row for each topic of the layout, a column for each of ipc.partition_counts.COUNTS. `broker`: the
    same of all topics, deleted ones too. `replicated`: bytes sent to followers.
    """

    topics: Numbers
    broker: Numbers
    replicated: int

    def of_topics(self, count: str) -> list[int]:
        """One count of each topic."""
        values: list[int] = self.topics[:, COUNTS.index(count)].tolist()
        return values

    def of_broker(self, count: str) -> int:
        """The same of all topics."""
        return int(self.broker[COUNTS.index(count)])


class TrafficReader:
    """Reads the regions of these roles; they appear when a process first uses a partition of their chunk."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._regions: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._left: dict[bytes, Numbers] = {}  # by topic id, of partitions that are here no longer

    def read(self, layout: Layout, roles: Iterable[int], chunks: int) -> Traffic:
        """The counts now. `chunks`: of the slot table."""
        regions = list(self._found(roles, chunks))
        broker, replicated = np.zeros(len(COUNTS), np.int64), 0
        for _, words in regions:
            followers = words[REPLICATION, _OWN]
            broker += words[:, _OWN].sum(axis=0) - followers
            replicated += int(followers[BYTES_OUT - 1])
        topics = np.zeros((len(layout.topics), len(COUNTS)), np.int64)
        np.add.at(topics, layout.topic_of, _by_partition(layout, regions))
        for row, topic in enumerate(layout.topics):
            if topic.id in self._left:
                topics[row] += self._left[topic.id]
        return Traffic(topics, broker, replicated)

    def moved(self, former: Layout, now: Layout, ids: set[bytes], roles: Iterable[int], chunks: int) -> None:
        """The metadata has changed: keep what was counted for partitions that have left. `ids`: of all topics."""
        gone = np.flatnonzero(~np.isin(former.incarnations, now.incarnations))
        if len(gone):
            counts = _by_partition(former, list(self._found(roles, chunks)))
            for place in gone.tolist():
                topic = former.topics[int(former.topic_of[place])].id
                self._left[topic] = self._left.get(topic, 0) + counts[place]
        for topic in self._left.keys() - ids:
            del self._left[topic]

    def _found(self, roles: Iterable[int], chunks: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The chunk and the rows of each region."""
        for role in roles:
            for chunk in range(chunks):
                words = self._words(role, chunk)
                if words is not None:
                    yield chunk, words

    def _words(self, role: int, chunk: int) -> NDArray[np.int64] | None:
        words = self._regions.get((role, chunk))
        if words is None:
            try:
                found = partition_counts.read(self._prefix, role, chunk)
            except RegionError:
                return None
            words = self._regions[role, chunk] = np.frombuffer(found, np.int64).reshape(-1, ROW)
        return words


def _by_partition(layout: Layout, regions: list[tuple[int, NDArray[np.int64]]]) -> Numbers:
    """A row for each partition, a column for each count."""
    counts = np.zeros((len(layout.slots), len(COUNTS)), np.int64)
    chunks = layout.slots // CHUNK
    places = {chunk: np.flatnonzero(chunks == chunk) for chunk in np.unique(chunks).tolist()}
    for chunk, words in regions:
        here = places.get(chunk)
        if here is not None:
            rows = words[HEAD + layout.slots[here] % CHUNK]
            own = np.maximum(rows[:, _OWN] - rows[:, _BEFORE], 0)  # the row may change hands meanwhile
            own[rows[:, INCARNATION] != layout.incarnations[here]] = 0
            counts[here] += own
    return counts
