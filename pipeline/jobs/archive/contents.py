"""The records of an archive, out of its live files, for those who only read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive import manifest
from odradek.pipeline.jobs.archive.manifest import File, State

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files
    from pyspark.sql import DataFrame, SparkSession

_CHECKSUMS = {"parquet.page.verify-checksum.enabled": "true"}  # Spark writes them, and does not look at them unasked
Result = TypeVar("Result")


def steadily(files: Files, read: Callable[[State], Result], whole: Callable[[Result], bool] = lambda _: True) -> Result:
    """What `read` makes of the archive's state.

    Done again when a compaction has taken files away meanwhile: `read` raises, or its result is not `whole`.
    """
    while True:
        state = manifest.live(files)
        try:
            result = read(state)
        except Exception:
            if manifest.live(files).number == state.number:
                raise
            continue
        if whole(result) or manifest.live(files).number == state.number:
            return result


def frames(spark: SparkSession, files: Files, chosen: Iterable[File]) -> list[tuple[list[File], DataFrame]]:
    """The rows of some files as they are in them: one frame for all files with the same columns."""
    groups = defaultdict(list)
    for file in chosen:
        groups[file.schema].append(file)
    reader = spark.read.options(**_CHECKSUMS)
    return [(group, reader.parquet(*(files.uri(file.path) for file in group))) for _, group in sorted(groups.items())]


def faults(files: Files, topic: str, chosen: Iterable[File]) -> dict[str, str]:
    """Files of the topic that are not there, or not of the size they were written with: what is wrong, by path."""
    sizes = {entry.path: entry.size for entry in files.list(f"topic={topic}")}
    found = {}
    for file in chosen:
        if file.path not in sizes:
            found[file.path] = f"{file.path} is missing ({file.rows} records)"
        elif sizes[file.path] != file.size:
            found[file.path] = f"{file.path} has {sizes[file.path]} bytes, it was written with {file.size}"
    return found


def check(files: Files, topic: str, chosen: Iterable[File]) -> None:
    """PipelineError where one is not as it was written."""
    if wrong := faults(files, topic, chosen):
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise PipelineError(f"the archive {files.root} is damaged: {next(iter(wrong.values()))}{more}")
