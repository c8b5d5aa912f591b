"""The records of an archive, from its live files, for readers only."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.manifest import File, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.jobs.files import Files

CHECKSUMS = {"parquet.page.verify-checksum.enabled": "true"}  # all files have some; Spark checks them only if asked
_AGAIN = 4  # while a job compacts each minute, a slow reader would never end
Result = TypeVar("Result")
log = logging.getLogger(__name__)


class Reading:
    """An archive while it is read. `state` is read again only where a compaction removed files."""

    def __init__(self, files: Files) -> None:
        self._files, self.state = files, manifest.live(files)

    def steadily(
        self, topic: str, read: Callable[[State], Result], whole: Callable[[Result], bool] = lambda _: True
    ) -> Result:
        """The result of `read` for the state, from which it takes files of the topic.

        Repeated, up to a few times, where it raises, or its result is not `whole`, and some of these files are gone.
        """
        for _ in range(_AGAIN):
            try:
                result = read(self.state)
            except Exception:
                if not self._taken(topic):
                    raise
            else:
                if whole(result) or not self._taken(topic):
                    return result
        return read(self.state)

    def _taken(self, topic: str) -> bool:
        """Whether files of the topic left the archive; then the state is the one without them."""
        before, self.state = self.state, manifest.live(self._files)
        taken = {file.path for file in before.of(topic)} - self.state.files.keys()
        if taken:
            log.warning("%s: %d files were compacted while they were read: they are read again", topic, len(taken))
        return bool(taken)


def first(files: Iterable[File], index: int, default: int) -> int:
    """The first offset of a partition in these files."""
    return min((file.partitions[index].first for file in files if index in file.partitions), default=default)


def frames(spark: SparkSession, files: Files, chosen: Iterable[File]) -> list[tuple[list[File], DataFrame]]:
    """The rows of some files as stored: one frame for all files with the same columns."""
    groups = defaultdict(list)
    for file in chosen:
        groups[file.schema].append(file)
    reader = spark.read.options(**CHECKSUMS)
    return [(group, reader.parquet(*(files.uri(file.path) for file in group))) for _, group in sorted(groups.items())]


def faults(files: Files, chosen: Iterable[File], folders: Iterable[str]) -> dict[str, str]:
    """Missing files, and files whose size differs from the written one: what is wrong, by path.

    The function lists `folders`: one listing beats hundreds, unless few of a folder's files are chosen.
    """
    sizes = {entry.path: entry.size for folder in folders for entry in files.list(folder)}
    found = {}
    for file in chosen:
        if file.path not in sizes:
            found[file.path] = f"{file.path} is missing ({file.rows} records)"
        elif sizes[file.path] != file.size:
            found[file.path] = f"{file.path} has {sizes[file.path]} bytes, but was written with {file.size}"
    return found


def check(files: Files, chosen: Sequence[File]) -> None:
    """PipelineError where a file is not as it was written."""
    if wrong := faults(files, chosen, sorted({file.folder for file in chosen})):
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise PipelineError(f"the archive {files.root} is damaged: {next(iter(wrong.values()))}{more}")
