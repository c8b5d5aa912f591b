"""Merge small files of an hour into as few of about the target size as one run can, with their records in order.

A commit replaces up to `_AT_ONCE` groups of files, by the same steps as a batch (see `store`). A group is one task.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import uuid4

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import progress
from odradek.pipeline.jobs.archive.sink import staging
from odradek.pipeline.jobs.archive.sink.staging import Staged
from odradek.pipeline.jobs.archive.store.contents import CHECKSUMS
from odradek.pipeline.jobs.archive.store.manifest import Commit, File, Span, State, now_ms
from odradek.pipeline.jobs.archive.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Group = list[File]
_AT_ONCE = 32


def groups(state: State, target: int, least: int = 2) -> list[Group]:
    """The files to merge: `least` or more of an hour and of the same columns, each below half of `target` bytes, and
    together not above it.
    """
    small = [file for file in state.files.values() if file.size < target / 2]
    small.sort(key=lambda file: (file.folder, file.schema, file.modified_ms, file.path))
    found = (_packed(same, target) for _, same in groupby(small, key=lambda file: (file.folder, file.schema)))
    return [group for packed in found for group in packed if len(group) >= least]


def _packed(files: Iterable[File], target: int) -> list[Group]:
    packed: list[Group] = []
    for file in files:
        if not packed or sum(each.size for each in packed[-1]) + file.size > target:
            packed.append([])
        packed[-1].append(file)
    return packed


def run(spark: SparkSession, store: Store, target: int, least: int = 2) -> int:
    """Merge the archive's small files; returns how many were replaced."""
    wanted = sorted(groups(store.state, target, least), key=lambda group: group[0].schema)
    for _, same in groupby(wanted, key=lambda group: group[0].schema):
        rest = list(same)
        schema = _schema(spark, store, rest[0][0])
        for begin in range(0, len(rest), _AT_ONCE):
            _replace(spark, store, rest[begin : begin + _AT_ONCE], schema)
    return sum(len(group) for group in wanted)


def _schema(spark: SparkSession, store: Store, file: File) -> StructType:
    return spark.read.parquet(store.files.uri(file.path)).schema


def _replace(spark: SparkSession, store: Store, chosen: list[Group], schema: StructType) -> None:
    name = uuid4().hex
    frames = [_merged(spark, store, group, schema, number) for number, group in enumerate(chosen)]
    topics = ", ".join(sorted({group[0].topic for group in chosen}))
    with progress.described(spark, f"archive {topics}: small files"):
        merged = reduce(lambda one, other: one.unionByName(other), frames)
        staged = staging.write(store.files, merged, f"{store.staging}/{name}", ("group",))
    moves, added = [], []
    for each in staged:
        number = int(each.folder.removeprefix("group="))
        file = _file(each, chosen[number], f"{store.state.number + 1}-{number}-{name}.parquet")
        moves.append((each.path, file.path))
        added.append(file)
    if len(added) != len(chosen):
        raise PipelineError(f"{len(chosen)} groups of small files became {len(added)} files; no file was changed")
    removed = tuple(file.path for group in chosen for file in group)
    store.commit(moves, Commit(f"compaction-{name}", 0, {}, tuple(added), removed, now_ms()))


def _merged(spark: SparkSession, store: Store, group: Group, schema: StructType, number: int) -> DataFrame:
    from pyspark.sql import functions as F

    uris = [store.files.uri(file.path) for file in group]
    rows = spark.read.options(**CHECKSUMS).schema(schema).parquet(*uris)
    in_order = rows.coalesce(1).sortWithinPartitions("partition", "offset")
    return in_order.withColumn("group", F.lit(number))


def _file(staged: Staged, group: Group, name: str) -> File:
    """The new file; PipelineError where its records are not those of the files that it replaces."""
    expected = together(group)
    if staged.partitions != expected:
        raise PipelineError(
            f"small files of {group[0].folder} have {expected} and would become {staged.partitions}; no file was "
            "changed"
        )
    path = f"{group[0].folder}/{name}"
    return File(path, group[0].topic, staged.partitions, staged.size, staged.modified_ms, group[0].schema)


def together(group: Iterable[File]) -> dict[int, Span]:
    """The records of each partition in these files."""
    found: dict[int, Span] = {}
    for file in group:
        for index, span in file.partitions.items():
            had = found.get(index, Span(0, span.first, span.last))
            found[index] = Span(had.rows + span.rows, min(had.first, span.first), max(had.last, span.last))
    return found
