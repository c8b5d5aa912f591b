"""A job of its own, for local Spark that tries tasks again: its first task is killed when half of its rows are written.

python dying_task.py BOOTSTRAP TOPIC FOLDER      (texts in FOLDER/in, one row a line)
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.pipeline.session import session
from odradek.pipeline.source import OdradekDataSource
from odradek.pipeline.writing import writer
from odradek.pipeline.writing.writer import StreamWriter

SETTINGS = {
    "spark.master": "local[1,2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.ui.enabled": "false",
}


class Dying(StreamWriter):
    """At the first try a task ends, as by the kernel's out-of-memory killer, after the first of its batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Half is delivered before."""
        context = TaskContext.get()
        if context is None or context.attemptNumber() > 0:
            return super().write(iterator)
        first = next(iterator, None)
        super().write(chain([first] if first is not None else []))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still here")


class DyingSource(OdradekDataSource):
    """The source, with that writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        made = writer.stream_writer(self.options, schema, overwrite)
        return Dying(made._plan)  # type: ignore[attr-defined]  # our writer has it


def main(bootstrap: str, topic: str, folder: Path) -> None:
    spark = session("dying", **SETTINGS)
    spark.dataSource.register(DyingSource)
    rows = spark.readStream.text(str(folder / "in"))
    query = (
        rows.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
