"""A run of the archive whose driver is killed before a certain change of a file; its tasks die as well.

python dying_archive.py BOOTSTRAP TOPIC FOLDER CHANGE TEXT COUNT [delta]

The first attempt of each task is killed in the middle of its rows, as by the kernel's out-of-memory killer. The driver
is killed at the COUNTth CHANGE (create, write, rename, delete) of a path that contains TEXT. With `delta` the topic is
a Delta table, too.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from odradek.pipeline.jobs.archive import job
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.staging import SETTINGS
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.reading.admission import AdmissionReader
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.session import session
from odradek.pipeline.source import OdradekDataSource

CONF = {
    "spark.master": "local[1,2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    **SETTINGS,
}


class DyingReader(AdmissionReader):
    """Kills the first attempt of each task."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Half of the first batch, at the first attempt."""
        context = TaskContext.get()
        for batch in super().read(partition):
            if context is not None and context.attemptNumber() == 0:
                yield batch.slice(0, batch.num_rows // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


class DyingSource(OdradekDataSource):
    """The data source with that reader."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        return DyingReader(ReadOptions.parse(self.options, streaming=True))


class DyingFiles(Files):
    """Kills the driver before the chosen change."""

    fate: tuple[str, str, int]

    def _change(self, kind: str, path: str, change: Callable[..., Any], *rest: str) -> Any:
        wanted, text, left = self.fate
        if kind == wanted and text in path:
            if left == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.fate = wanted, text, left - 1
        return change(path, *rest)

    def create(self, path: str, text: str) -> bool:
        return bool(self._change("create", path, super().create, text))

    def write(self, path: str, text: str) -> None:
        self._change("write", path, super().write, text)

    def rename(self, old: str, new: str) -> None:
        self._change("rename", old, super().rename, new)

    def delete(self, path: str) -> None:
        self._change("delete", path, super().delete)


def main(bootstrap: str, topic: str, folder: str, kind: str, text: str, count: str, *more: str) -> None:
    spark = session("dying", **CONF)
    spark.dataSource.register(DyingSource)
    files = DyingFiles(spark, folder)
    files.fate = kind, text, int(count)
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    job.run(spark, files, Job(source, delta="delta" in more))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
