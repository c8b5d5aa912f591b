"""The stages of a file, once; one of them stops in a batch, creates the file MARKER and waits to be killed.

python halting_stages.py FILE.toml STAGE BATCH task|commit MARKER

`task`: all tasks but the first stop before they write. `commit`: the sink has everything, the checkpoint does not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.stages.analysis.analysis import analysed
from odradek.pipeline.jobs.stages.command import SETTINGS
from odradek.pipeline.jobs.stages.declaration.declaration import load
from odradek.pipeline.jobs.stages.running import cluster, running
from odradek.pipeline.jobs.stages.running.streams import Streams
from odradek.pipeline.session import session
from odradek.pipeline.source import OdradekDataSource
from odradek.pipeline.wire.brokers import Brokers
from odradek.pipeline.writing import stamps, writer
from odradek.pipeline.writing.writer import StreamWriter

SPARK = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class Halting(StreamWriter):
    """Stops in a task, or after the commit."""

    def __init__(self, plan: Any, batch: int, where: str, marker: Path) -> None:
        super().__init__(plan)
        self._batch, self._where, self._marker = batch, where, marker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Never ends in that batch, except for the first task."""
        self._halt("task", stamps.task().epoch if stamps.task().partition else -1)
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Never ends in that batch."""
        super().commit(messages, batchId)
        self._halt("commit", batchId)

    def _halt(self, where: str, batch: int) -> None:
        while (where, batch) == (self._where, self._batch):
            self._marker.touch()
            time.sleep(1)


def halting(batch: int, where: str, marker: Path) -> type[OdradekDataSource]:
    """The data source with that writer."""

    class HaltingSource(OdradekDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            made = writer.stream_writer(self.options, schema, overwrite)
            return Halting(made._plan, batch, where, marker)  # type: ignore[attr-defined]

    return HaltingSource


def main(file: Path, name: str, batch: int, where: str, marker: Path) -> None:
    spark = session("halting", **{**SETTINGS, **SPARK})
    pipeline = load(file)
    known, mistakes = analysed(spark, pipeline)
    assert not mistakes
    with Brokers(pipeline.kafka) as brokers:
        new, _ = cluster.missing(pipeline, brokers.topics())
    topics.create(pipeline.kafka, new, {}, may_exist=True)
    for stage in pipeline.stages:
        spark.dataSource.register(halting(batch, where, marker) if stage.name == name else OdradekDataSource)
        running.once(Streams(spark, pipeline, known), stage)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
