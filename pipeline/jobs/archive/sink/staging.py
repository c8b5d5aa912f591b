"""Stage the Parquet files of a batch before they join the archive: Spark's tasks write them, then they are counted.

No shuffle and no sort: a task's rows are of one partition, and it writes those of each topic and hour to one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from odradek.pipeline.jobs.archive.store.contents import CHECKSUMS
from odradek.pipeline.jobs.archive.store.manifest import Span
from odradek.pipeline.writing.cutting import ADAPTIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.jobs.files import Files

SETTINGS = {
    # Files that a task has open at once; only a task with rows of more hours sorts the rest of them.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    # A type that all readers support, and that the tasks' own files have (`direct`).
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A failed cast gives null: otherwise one bad value of an event time would end the job.
    "spark.sql.ansi.enabled": "false",
    # `session` switches it off for streams with a shuffle; here only the queries about a batch have one.
    ADAPTIVE: "true",
}
"""Settings of the session that writes."""


class Staged(NamedTuple):
    """A file; `folder` is that of the partitioning columns, `size` in bytes."""

    path: str
    folder: str
    partitions: dict[int, Span]
    size: int
    modified_ms: int


def write(files: Files, frame: DataFrame, folder: str, by: tuple[str, ...]) -> list[Staged]:
    """Write the rows to Parquet below `folder`, a file for each task and value of the columns `by`, and count them."""
    frame.write.partitionBy(*by).parquet(files.uri(folder))
    entries = [entry for entry in files.list(folder) if entry.path.endswith(".parquet")]
    spans = _spans(frame.sparkSession, files.uri(folder)) if entries else {}
    staged = []
    for path, size, modified_ms in entries:
        inner = path.removeprefix(f"{folder}/")
        staged.append(Staged(path, inner.rpartition("/")[0], spans[inner], size, modified_ms))
    return staged


def _spans(spark: SparkSession, uri: str) -> dict[str, dict[int, Span]]:
    """By a file's path below `uri`. It reads only two columns, and shuffles one row per file."""
    from pyspark.sql import functions as F

    rows = spark.read.options(**CHECKSUMS).schema("`partition` int, `offset` bigint").parquet(uri)
    counted = rows.groupBy(F.input_file_name(), "partition").agg(F.count("*"), F.min("offset"), F.max("offset"))
    found: dict[str, dict[int, Span]] = {}
    folder = uri.rpartition("/")[2]
    for file, partition, count, first, last in counted.collect():
        inner = unquote(file).rpartition(f"/{folder}/")[2]
        found.setdefault(inner, {})[partition] = Span(count, first, last)
    return found
