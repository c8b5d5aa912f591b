"""A topic without an end: what is there from `start` on, and what is written later, until the generator is closed."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from odradek.arrowtables import client, forms, request
from odradek.arrowtables.forms import Decoding, Form
from odradek.arrowtables.fragment import Dead, Fragment, batches
from odradek.arrowtables.read import MEMORY, SPLIT, usable_cores
from odradek.arrowtables.request import Positions
from odradek.pipeline.errors import DataLoss
from odradek.pipeline.reading import losses, offsets, planning, splits
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import EARLIEST, LATEST, Partition
from odradek.pipeline.wire.brokers import Brokers

LISTED = 5.0  # s between looks for new partitions
STEP = 4_000_000  # offsets in one plan: a plan is of what exists then, and more comes meanwhile
PIECE = 200_000  # offsets in one fragment
FEW = 20_000  # offsets for which opening the leader's files is not worth it
PATIENCE = 3  # looks at ends before what was read: a new leader may report that for a moment


def follow(
    topic: str,
    start: Positions = "latest",
    columns: Sequence[str] | None = None,
    schema: object = None,
    *,
    bootstrap_servers: str | Sequence[str],
    partitions: Collection[int] | None = None,
    isolation: str = "read_committed",
    local: str = "auto",
    compacted: bool | None = None,
    dead: Dead | None = None,
    threads: int | None = None,
    memory: int = MEMORY,
    interval: float = 0.1,
    **settings: Any,
) -> Generator[pa.RecordBatch, None, None]:
    """Record batches without an end; offsets of a partition rise. Positions are resolved with the first batch.

    It looks for new records every `interval` seconds. Nothing is committed: the column `offset` says where to go on.
    Errors are those of `read`; a topic that is deleted meanwhile raises UnknownTopic, one that is recreated DataLoss.
    """
    threads = usable_cores() if threads is None else threads
    request.check_numbers(threads=threads, memory=memory)
    with client.own_words():
        options = request.options(
            topic,
            start,
            "latest",
            servers=bootstrap_servers,
            partitions=partitions,
            isolation=isolation,
            local=local,
            compacted=compacted,
            split_bytes=SPLIT,
            settings=settings,
        )
    names, decoded = request.columns(columns), forms.forms(schema)
    options = replace(options, columns=Decoding(decoded, names).reads, max_records=PIECE)
    return _followed(Followed(options, names, decoded), threads, memory, dead, interval)


def _followed(
    what: Followed, threads: int, memory: int, dead: Dead | None, interval: float
) -> Generator[pa.RecordBatch, None, None]:
    with client.own_words(), Brokers(what.options.kafka) as brokers:
        client.reach(brokers)
        what.begin(brokers)
        while True:
            found = what.new(brokers)
            yield from batches(found, threads, memory, dead, brokers)
            if not found:
                time.sleep(interval)


class Followed:
    """A topic, and up to where each of its partitions was read."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...], decoded: dict[str, Form]) -> None:
        self.options, self._names, self._forms = options, names, decoded
        self._at: dict[Partition, int] = {}
        self._ids: dict[Partition, bytes] = {}
        self._listed = 0.0  # monotonic seconds
        self._behind = 0  # looks that found an end before what was read

    def begin(self, brokers: Brokers) -> None:
        """Resolve the start. OptionError, UnknownTopic; DataLoss for offsets that do not exist."""
        options = self.options
        keys = options.subscription.existing(brokers.topics())
        self._at = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
        first, last = brokers.offsets(keys, EARLIEST), brokers.offsets(keys, LATEST)
        for key, at in self._at.items():
            if not first[key] <= at <= last[key]:
                raise DataLoss(_missing(key, at, first[key], last[key]))
        self._listed = time.monotonic()

    def new(self, brokers: Brokers) -> list[Fragment]:
        """What was written since the last call, at most STEP offsets of it."""
        with brokers.steady():
            self._look_for_partitions(brokers)
            end = self._ends(brokers)
            self._check_topic(brokers)
            if end == self._at or self._is_behind(end):
                return []
            end = planning.limited(self._at, end, STEP)
            ranges, lost = losses.between(self._at, end, brokers.offsets(self._at, EARLIEST))
            losses.report(lost, fail=True)
            options = self._options(sum(each.size for each in ranges))
            found = splits.of_stream(brokers, ranges, ranges, options)
        self._at = end
        return [Fragment(split, options, self._names, self._forms) for split in found]

    def _look_for_partitions(self, brokers: Brokers) -> None:
        """A new partition is read from its first offset."""
        if time.monotonic() - self._listed >= LISTED:
            keys = self.options.subscription.existing(brokers.topics(self._at))
            self._at = brokers.offsets(set(keys) - self._at.keys(), EARLIEST) | self._at
            self._listed = time.monotonic()

    def _ends(self, brokers: Brokers) -> dict[Partition, int]:
        """The current ends. A start between the last stable offset and the log's end waits there."""
        end = brokers.offsets(self._at, LATEST, self.options.committed)
        before = [key for key, at in self._at.items() if end[key] < at] if self.options.committed else []
        logs = brokers.offsets(before, LATEST) if before else {}
        return end | {key: self._at[key] for key, log_end in logs.items() if log_end >= self._at[key]}

    def _is_behind(self, end: dict[Partition, int]) -> bool:
        """Whether to look again because an end is before what was read."""
        self._behind = self._behind + 1 if any(end[key] < at for key, at in self._at.items()) else 0
        return 0 < self._behind <= PATIENCE

    def _check_topic(self, brokers: Brokers) -> None:
        ids = {key: leader.topic_id for key, leader in brokers.leaders_of(self._at).items()}
        for key, topic_id in ids.items():
            if self._ids.setdefault(key, topic_id) != topic_id:
                raise DataLoss(f"topic {key[0]!r} was recreated while it was followed")

    def _options(self, count: int) -> ReadOptions:
        few = count < FEW and self.options.local == "auto"
        return replace(self.options, local="off") if few else self.options


def _missing(key: Partition, at: int, first: int, end: int) -> str:
    has = f"has {first} to {end - 1}" if first < end else f"is empty and ends at {end}"
    return f"{offsets.names([key])}: offset {at} does not exist: the log {has}"
