"""A job for local Spark with task retries: the first attempt is killed after it has written half of its rows.

python dying_task.py BOOTSTRAP TOPIC FOLDER      (text files in FOLDER/in, one row a line)
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
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.ui.enabled": "false",
}


class Dying(StreamWriter):
    """SIGKILLs the first attempt of a task after its first record batch, as the kernel's out-of-memory killer does."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver the first record batch, then die at the first attempt."""
        context = TaskContext.get()
        if context is None or context.attemptNumber() > 0:
            return super().write(iterator)
        first = next(iterator, None)
        super().write(chain([first] if first is not None else []))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still here")


class DyingSource(OdradekDataSource):
    """The data source with the dying writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        made = writer.stream_writer(self.options, schema, overwrite)
        return Dying(made._plan)  # type: ignore[attr-defined]  # our writer has `_plan`


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
