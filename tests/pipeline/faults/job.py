"""A job in its own process: a stream from topic to topic, each row once, whose parts die at chosen points.

python job.py FOLDER        FOLDER/job.json is a `stream.Job`; the job ends when FOLDER/stop exists and all is read

Each death happens once. FOLDER/died/POINT appears then, with the process id: <epoch>-<partition> for a task, <epoch>
for a driver. FOLDER/done/<epoch>-<partition> appears when a task has written its rows; the tasks of other partitions
than 0 die after the task of partition 0 has written.

A batch of `df.write` dies the death that FOLDER/armed names, once: this file then becomes FOLDER/died/<death>.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.session import session
from odradek.pipeline.source import OdradekDataSource
from odradek.pipeline.writing import stamps, transactions, writer
from odradek.pipeline.writing.outgoing import Record
from odradek.pipeline.writing.writer import BatchWriter, Plan, StreamWriter

SETTINGS = {
    "spark.master": "local[2,4]",  # tasks are tried four times
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.ui.enabled": "false",
}
PAUSE, LONGEST = 0.05, 300  # seconds


class Dying(StreamWriter):
    """The source's own writer, with deaths."""

    def __init__(self, plan: Plan, folder: Path, deaths: dict[str, str]) -> None:
        super().__init__(plan)
        self._folder, self._deaths = folder, deaths

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        task = stamps.task()
        name = f"{task.epoch}-{task.partition}"
        death = self._deaths.get(name)
        if death and task.partition:
            await_file(self._folder / "done" / f"{task.epoch}-0")
        if death == "begun" and self._first(name):
            kill_this()
        if death == "stray" and not (self._folder / "died" / name).exists():
            return self._stray(name, iterator)
        if death == "sent" and self._first(name):
            transactions.Transaction = Delivering  # type: ignore[misc]
            iterator = dying_after_one(iterator)
        written = super().write(iterator)
        if death == "committed" and self._first(name):
            kill_this()
        (self._folder / "done" / name).touch()
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """All tasks of a batch have written their rows, and the checkpoint does not have the batch yet."""
        death = self._deaths.get(str(batchId))
        if death == "driver" and self._first(str(batchId)):
            time.sleep(LONGEST)  # until the test kills the driver
        if death == "told" and self._first(str(batchId)):
            kill_this()
        super().commit(messages, batchId)

    def _stray(self, name: str, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Outlive the driver, and write the rows when FOLDER/go exists."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # with SIGHUP, Spark's daemon ends its workers
        batches = list(iterator)
        self._first(name)  # from here on, the task does not need the driver
        await_file(self._folder / "go")
        try:
            return super().write(iter(batches))
        except PipelineError as error:
            (self._folder / "strayed").write_text(str(error))
            raise

    def _first(self, name: str) -> bool:
        try:
            with (self._folder / "died" / name).open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


class DyingBatch(BatchWriter):
    """The same for a named batch: only tasks other than the first die, after the first task has written its rows."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan)
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        partition = stamps.partition()
        if partition and (self._folder / "armed").exists():
            await_file(self._done(0))
            if self._dies("begun"):
                kill_this()
            if self._dies("sent"):
                transactions.Transaction = Delivering  # type: ignore[misc]
                iterator = dying_after_one(iterator)
            if self._dies("half"):
                transactions.Transaction = DyingCommitted  # type: ignore[misc]
        written = super().write(iterator)
        if partition and self._dies("committed"):
            kill_this()
        self._done(partition).touch()
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written their rows, and Spark does not know that the batch is complete."""
        if self._dies("told"):
            kill_this()
        super().commit(messages)

    def _done(self, partition: int) -> Path:
        """The file that marks a finished task of this attempt."""
        return self._folder / "done" / f"{self._plan.run}-{partition}"

    def _dies(self, death: str) -> bool:
        """Whether this process is the one that dies this death."""
        armed = self._folder / "armed"
        with suppress(FileNotFoundError):
            if armed.read_text() == death:
                armed.rename(self._folder / "died" / death)
                return True
        return False


class Delivering(transactions.Transaction):
    """The transaction of a task that is about to die."""

    def send(self, records: Iterable[Record]) -> None:
        """When this returns, the records are on the broker."""
        super().send(records)
        self.finish()


class DyingCommitted(transactions.Transaction):
    """Dies after the commit of one unit; the transactions of the task's other units are open."""

    def commit(self, written: Mapping[str, int]) -> None:
        """Commit, then die."""
        super().commit(written)
        kill_this()


def dying_after_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass the first batch on, then kill this process, as the kernel's out-of-memory killer does."""
    yield next(batches)
    kill_this()


def kill_this() -> None:
    """SIGKILL this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def await_file(path: Path) -> None:
    """Wait until the file exists, or until the timeout."""
    deadline = time.monotonic() + LONGEST
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(PAUSE)


def dying(folder: Path, deaths: dict[str, str]) -> type[OdradekDataSource]:
    """The data source with those writers."""

    class DyingSource(OdradekDataSource):
        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            made = writer.writer(self.options, schema, overwrite)
            return DyingBatch(made._plan, folder)  # type: ignore[attr-defined]

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            made = writer.stream_writer(self.options, schema, overwrite)
            return Dying(made._plan, folder, deaths)  # type: ignore[attr-defined]

    return DyingSource


def start(folder: Path) -> StreamingQuery:
    """Start the query of FOLDER/job.json."""
    job = json.loads((folder / "job.json").read_text())
    spark = session("faults", **SETTINGS | job["conf"])
    spark.dataSource.register(dying(folder, job["deaths"]))
    brokers = {"kafka.bootstrap.servers": job["bootstrap"]}
    rows = spark.readStream.format("odradek").options(**brokers, **job["reading"]).load().select("key", "value")
    sink = rows.writeStream.format("odradek").options(**brokers, **job["writing"])
    sink = sink.option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(processingTime="0 seconds").start()


def main(folder: Path) -> None:
    """Raises the query's own error, if it has one."""
    query = start(folder)
    while not (folder / "stop").exists():
        if query.awaitTermination(PAUSE):  # type: ignore[arg-type]  # fractions of a second are allowed
            return
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
