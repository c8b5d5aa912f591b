"""Archives made by the job, and their records by three witnesses: manifest, folders, Spark's readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from odradek.pipeline.jobs.archive import job
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.staging import SETTINGS
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.manifest import State
from odradek.pipeline.jobs.files import Files

from ..spark_settings import spark_settings
from ..topics import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ids = list[tuple[int, int]]
"""Partition and offset of records, sorted."""
Reader = Callable[["SparkSession", Path, str], Ids]


def ids(sent: list[Sent]) -> Ids:
    """Partition and offset of sent records, sorted."""
    return sorted((one.partition, one.offset) for one in sent)


def source(broker: Any, *topics: str, **options: str) -> dict[str, str]:
    """The job's source options; `_` in an option's name stands for `.`."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(topics), **named}


def archive(spark: SparkSession, folder: Path | str, wanted: Job, files: Files | None = None) -> State:
    """Run the job once, to a folder or a URI, with these files; returns the state of the archive."""
    with spark_settings(spark, SETTINGS):
        job.run(spark, files or Files(spark, str(folder)), wanted)
    return live(spark, folder)


def live(spark: SparkSession, folder: Path | str) -> State:
    """The state by the manifest."""
    return manifest.live(Files(spark, str(folder)))


def seen(spark: SparkSession, folder: Path | str, topic: str) -> Ids:
    """The records that Spark reads in the topic's folder."""
    frame = spark.read.parquet(f"{folder}/topic={topic}").select("partition", "offset")
    return sorted((row[0], row[1]) for row in frame.collect())


def visible(spark: SparkSession, folder: Path, topic: str) -> Ids:
    """The records in the files that Spark would read in the topic's folder: quicker, and without a Spark job."""
    if not (folder / f"topic={topic}").exists():
        return []
    frame = spark.read.schema("`partition` int, `offset` bigint").parquet(f"{folder}/topic={topic}")
    try:
        return read_ids(Path(uri.removeprefix("file://")) for uri in frame.inputFiles())
    except FileNotFoundError:  # compacted in between
        return visible(spark, folder, topic)


def stored(folder: Path, topic: str) -> Ids:
    """The records of all files in the topic's folder."""
    return read_ids(folder.glob(f"topic={topic}/**/*.parquet"))


def listed(folder: Path, state: State, topic: str) -> Ids:
    """The records of the files that the manifest names."""
    return read_ids(folder / file.path for file in state.of(topic))


def assert_whole(spark: SparkSession, folder: Path, topic: str, expected: Ids, reader: Reader = seen) -> State:
    """Each record is there once for all three witnesses, and no temporary file is left."""
    state = live(spark, folder)
    assert reader(spark, folder, topic) == expected
    assert stored(folder, topic) == expected
    assert listed(folder, state, topic) == expected
    for file in state.files.values():
        rows = read_ids([folder / file.path])
        for index, span in file.partitions.items():
            offsets = [offset for partition, offset in rows if partition == index]
            assert span == (len(offsets), offsets[0], offsets[-1])
        assert file.size == (folder / file.path).stat().st_size
        assert file.rows == len(rows)
    left = {path.name for path in (folder / "_odradek").iterdir()} - {"commits", "checkpoint"}
    assert not left
    return state


def read_ids(files: Iterable[Path]) -> Ids:
    """The records of Parquet files."""
    found: Ids = []
    for path in files:
        table = pq.ParquetFile(path).read(["partition", "offset"])
        found += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return sorted(found)
