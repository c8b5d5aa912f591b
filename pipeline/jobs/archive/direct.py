"""Records into staged files by the tasks that read them, without a way through the JVM (`reading.parquet`).

So it is wherever nothing is to be done to them: bytes as they are, filed by their own timestamps, into a folder that
is a path for the tasks too. It takes half of the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.jobs.archive.columns import Columns
from odradek.pipeline.jobs.archive.formats import Format
from odradek.pipeline.jobs.archive.manifest import Span
from odradek.pipeline.jobs.archive.staging import Staged

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files
    from pyspark.sql import DataFrame, Row


def possible(files: Files, columns: Columns) -> bool:
    """Whether the archive is on a file system with paths, and records are written as they are."""
    formats = {*columns.formats.keys.values(), *columns.formats.values.values()}
    return files.here is not None and columns.event_time is None and formats <= {Format()}


def options(files: Files, folder: str) -> dict[str, str]:
    """Of the source, for a stream whose tasks write below `folder`."""
    assert files.here is not None
    return {"odradek.parquet": str(files.here / folder), "odradek.parquet.hourly": "true"}


def staged(files: Files, told: DataFrame, folder: str) -> list[Staged]:
    """Have a batch of such a stream written. What tasks that failed have left below `folder` is not among them."""
    rows = told.collect()
    times = {entry.path: entry.modified_ms for entry in files.list(folder)}
    return [_staged(row, f"{folder}/{row.path}", times) for row in rows]


def _staged(row: Row, path: str, times: dict[str, int]) -> Staged:
    span = Span(row.rows, row.first, row.last)
    return Staged(path, row.path.rpartition("/")[0], {row.partition: span}, row.size, times[path])
