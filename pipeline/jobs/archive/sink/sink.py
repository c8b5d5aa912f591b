"""Archive a batch of the stream: stage its files, move them into place, and commit them with the batch's offsets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import progress
from odradek.pipeline.jobs.archive.sink import direct, skips, staging, start
from odradek.pipeline.jobs.archive.sink.columns import FOLDERS, Columns, digest
from odradek.pipeline.jobs.archive.sink.staging import Staged
from odradek.pipeline.jobs.archive.sink.start import Start
from odradek.pipeline.jobs.archive.store.manifest import Commit, Configs, File, Skipped, now_ms, topic_of
from odradek.pipeline.jobs.archive.store.store import CHECKPOINT, Move, Store
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.source import SCHEMA_WITH_HEADERS
from odradek.pipeline.types import Partition, Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOLD = 100  # batches; Spark reports each soon after its end
Ranges = Mapping[Partition, tuple[int, int]]
Rows = dict[tuple[str, int], int]
"""Records by a query's name and the number of its batch."""


class Sink:
    """The function of `foreachBatch` for a stream that began at `begin`; it chooses `name` and `checkpoint`.

    `rows` gets the records of each batch, by name and number; the last ones stay.
    """

    def __init__(self, store: Store, begin: Start, columns: Columns, source: ReadOptions, rows: Rows) -> None:
        self.stream = uuid4().hex
        self.checkpoint = f"{CHECKPOINT}/{self.stream}"
        self.name = f"archive-{self.stream[:8]}"
        self.rows = rows
        self._store = store
        self._source = source
        self._at, self._ids = {**store.state.offsets, **begin.begin}, begin.ids
        self._columns = columns
        self._direct = direct.possible(store.files, columns)
        self._folder = f"{store.staging}/{self.stream}"

    @property
    def options(self) -> dict[str, str]:
        """Additional options for the source."""
        return direct.options(self._store.files, self._folder) if self._direct else {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Raises PipelineError when the batch cannot be archived; that ends the stream."""
        end = self._end(batch)
        ranges = self._ranges(end)
        moves, added = [], []
        for move, file in self._staged(frame, ranges):
            moves.append(move)
            added.append(file)
        note(self.rows, (self.name, batch), sum(file.rows for file in added))
        configs = self._changed(end)
        skipped = self._skipped(frame.sparkSession, ranges, added, {**self._store.state.configs, **configs})
        made = Commit(self.stream, batch, ranges, tuple(added), (), now_ms(), self._new(end), configs, skipped)
        self._store.commit(moves, made)
        self._at = {**self._at, **{key: until for key, (_, until) in ranges.items()}}  # also those not in this batch

    def _ranges(self, end: Mapping[Partition, int]) -> Ranges:
        """From the archive's end, even for partitions that the cluster did not list when the run began."""
        return {key: (self._at.get(key, 0), max(self._at.get(key, 0), offset)) for key, offset in end.items()}

    def _new(self, read: Iterable[Partition]) -> dict[str, str]:
        """The ids of topics that are new to the archive; PipelineError where one was recreated meanwhile."""
        found = start.ids(self._source, {topic for topic, _ in read}, self._ids)
        self._ids = {**self._ids, **found}
        return {topic: id for topic, id in found.items() if topic not in self._store.state.ids}

    def _changed(self, read: Iterable[Partition]) -> dict[str, Mapping[str, str]]:
        """The settings of topics that differ from the archive's, or are new."""
        found = start.configs(self._source, {topic for topic, _ in read})
        known = self._store.state.configs
        return {topic: config for topic, config in found.items() if known.get(topic) != config}

    def _skipped(self, spark: SparkSession, ranges: Ranges, added: list[File], configs: Configs) -> Skipped:
        """The offsets without a record, and why."""
        missing = {Range(*key, *both): both[1] - both[0] - count for key, both, count in _counts(ranges, added)}
        short = {one: count for one, count in missing.items() if count}
        with progress.described(spark, f"archive {', '.join(sorted({one.topic for one in short}))}: skipped offsets"):
            return skips.reasons(spark, self._source, short, partial(self._compacted, configs))

    def _compacted(self, configs: Configs, topic: str) -> bool:
        said = self._source.compacted
        return "compact" in configs.get(topic, {}).get("cleanup.policy", "") if said is None else said

    def _end(self, batch: int) -> dict[Partition, int]:
        """Where the batch ends: Spark records it in the checkpoint before it starts the batch."""
        return offsets.from_json(
            json.loads(self._store.files.read(f"{self.checkpoint}/offsets/{batch}").splitlines()[-1])
        )

    def _staged(self, frame: DataFrame, ranges: Ranges) -> list[tuple[Move, File]]:
        topics = sorted({topic for (topic, _), (begin, end) in ranges.items() if begin < end})
        with progress.described(frame.sparkSession, f"archive {', '.join(topics)}"):
            if self._direct:
                found = self._told(frame)
            else:
                found = [each for part in self._columns.of(frame, topics) for each in self._written(part)]
        _check([file for _, file in found], ranges)
        return found

    def _told(self, frame: DataFrame) -> list[tuple[Move, File]]:
        empty = frame.sparkSession.createDataFrame([], SCHEMA_WITH_HEADERS)
        staged, name = direct.staged(self._store.files, frame, self._folder), uuid4().hex
        return [self._placed(each, f"{number}-{name}", digest(empty)) for number, each in enumerate(staged)]

    def _written(self, shaped: DataFrame) -> list[tuple[Move, File]]:
        name, schema = uuid4().hex, digest(shaped)
        staged = staging.write(self._store.files, shaped, f"{self._store.staging}/{name}", FOLDERS)
        return [self._placed(each, f"{number}-{name}", schema) for number, each in enumerate(staged)]

    def _placed(self, staged: Staged, name: str, schema: str) -> tuple[Move, File]:
        """The target of a staged file, and its entry in the manifest."""
        path = f"{staged.folder}/{self._store.state.number + 1}-{name}.parquet"
        spans = staged.partitions
        return (staged.path, path), File(path, topic_of(path), spans, staged.size, staged.modified_ms, schema)


def note(rows: Rows, batch: tuple[str, int], count: int) -> None:
    """Record the number of a batch's records, and forget those of batches reported long ago."""
    rows[batch] = count
    for old in list(rows)[:-_TOLD]:
        del rows[old]


def _counts(ranges: Ranges, files: list[File]) -> Iterator[tuple[Partition, tuple[int, int], int]]:
    """Each range with the number of its records."""
    rows: Counter[Partition] = Counter()
    for file in files:
        rows.update({(file.topic, index): span.rows for index, span in file.partitions.items()})
    yield from ((key, both, rows[key]) for key, both in ranges.items())


def _check(files: list[File], ranges: Ranges) -> None:
    """The written records must be those of the ranges; PipelineError where they are not."""
    rows: dict[Partition, int] = {}
    for file in files:
        for index, span in file.partitions.items():
            begin, end = ranges.get((file.topic, index), (0, 0))
            rows[file.topic, index] = rows.get((file.topic, index), 0) + span.rows
            if span.first < begin or span.last >= end or rows[file.topic, index] > end - begin:
                raise PipelineError(
                    f"{file.topic}-{index}: offsets {span.first} to {span.last} were written instead of {begin} to "
                    f"{end - 1}; nothing of this batch is archived"
                )
