"""The tasks that read records write the staged files, without the JVM (`reading.parquet`).

This works where records stay unchanged: bytes as they are, filed by their own timestamps, into a folder that is a path
for the tasks too. It takes half of the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.formats.formats import Format
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.sink.staging import Staged
from odradek.pipeline.jobs.archive.store.manifest import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from odradek.pipeline.jobs.files import Entry, Files


def possible(files: Files, columns: Columns) -> bool:
    """Whether the archive is on a file system with paths, and records are written unchanged."""
    formats = {*columns.formats.keys.values(), *columns.formats.values.values()}
    return files.here is not None and columns.event_time is None and formats <= {Format()}


def options(files: Files, folder: str) -> dict[str, str]:
    """The source's options for a stream whose tasks write below `folder`."""
    assert files.here is not None
    return {"odradek.parquet": str(files.here / folder), "odradek.parquet.hourly": "true"}


def staged(files: Files, told: DataFrame, folder: str) -> list[Staged]:
    """Run a batch of such a stream. Files that failed tasks left below `folder` are not in the result.

    PipelineError for a file that is not as its task left it.
    """
    rows = told.collect()
    entries = {entry.path: entry for entry in files.list(folder)}
    return [_staged(files, row, entries.get(f"{folder}/{row.path}")) for row in rows]


def _staged(files: Files, row: Row, entry: Entry | None) -> Staged:
    if entry is None or entry.size != row.size:
        raise PipelineError(
            f"{files.root}: a task wrote {row.path} ({row.size} bytes), but here "
            f"{f'it has {entry.size} bytes' if entry else 'it is missing'}: the folder must be the same for all "
            "executors"
        )
    span = Span(row.rows, row.first, row.last)
    return Staged(entry.path, row.path.rpartition("/")[0], {row.partition: span}, row.size, entry.modified_ms)
