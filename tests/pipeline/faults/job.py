"""A job of its own: a stream from topic to topic, each row once, whose parts die where they are told to.

python job.py FOLDER        FOLDER/job.json is a `stream.Job`; it goes on until there is FOLDER/stop and all is read

Each death is died once. FOLDER/died/POINT appears then, with the process id: <epoch>-<partition> of a task's,
<epoch> of a driver's. FOLDER/done/<epoch>-<partition> appears when a task has written its rows; the tasks of other
partitions than 0 die after that of partition 0 has.

A batch of `df.write` dies the death that FOLDER/armed names, once: FOLDER/died/<death> is that file then.
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
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.ui.enabled": "false",
}
PAUSE, LONGEST = 0.05, 300  # seconds


class Dying(StreamWriter):
    """Writes as the source's own, but for the deaths."""

    def __init__(self, plan: Plan, folder: Path, deaths: dict[str, str]) -> None:
        super().__init__(plan)
        self._folder, self._deaths = folder, deaths

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task's rows."""
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
        """All tasks of a batch have written theirs, and the checkpoint does not know it yet."""
        death = self._deaths.get(str(batchId))
        if death == "driver" and self._first(str(batchId)):
            time.sleep(LONGEST)  # until the test kills the driver
        if death == "told" and self._first(str(batchId)):
            kill_this()
        super().commit(messages, batchId)

    def _stray(self, name: str, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Outlives its driver, and writes what it has when there is FOLDER/go."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # by which Spark's daemon takes its workers along
        batches = list(iterator)
        self._first(name)  # now the driver may die: nothing more is wanted of it
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
    """The same for a batch with a name: no task but the first dies, when that one has written its rows."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan)
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task's rows."""
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
        """All tasks have written theirs, and Spark does not know that the batch is done."""
        if self._dies("told"):
            kill_this()
        super().commit(messages)

    def _done(self, partition: int) -> Path:
        """What a task of this attempt leaves."""
        return self._folder / "done" / f"{self._plan.run}-{partition}"

    def _dies(self, death: str) -> bool:
        """Whether this is the one to die it."""
        armed = self._folder / "armed"
        with suppress(FileNotFoundError):
            if armed.read_text() == death:
                armed.rename(self._folder / "died" / death)
                return True
        return False


class Delivering(transactions.Transaction):
    """Of a task that is about to die."""

    def send(self, records: Iterable[Record]) -> None:
        """They are on the broker when this returns."""
        super().send(records)
        self.finish()


class DyingCommitted(transactions.Transaction):
    """Of one unit; the others of its task are undecided."""

    def commit(self, written: Mapping[str, int]) -> None:
        """The last that it does."""
        super().commit(written)
        kill_this()


def dying_after_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first batch, and then the end of this process, as by the kernel's out-of-memory killer."""
    yield next(batches)
    kill_this()


def kill_this() -> None:
    """SIGKILL to the process that this runs in."""
    os.kill(os.getpid(), signal.SIGKILL)


def await_file(path: Path) -> None:
    """Return when it is there, or it has taken too long."""
    deadline = time.monotonic() + LONGEST
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(PAUSE)


def dying(folder: Path, deaths: dict[str, str]) -> type[OdradekDataSource]:
    """The source, with those writers."""

    class DyingSource(OdradekDataSource):
        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            made = writer.writer(self.options, schema, overwrite)
            return DyingBatch(made._plan, folder)  # type: ignore[attr-defined]

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            made = writer.stream_writer(self.options, schema, overwrite)
            return Dying(made._plan, folder, deaths)  # type: ignore[attr-defined]

    return DyingSource


def start(folder: Path) -> StreamingQuery:
    """The query of FOLDER/job.json."""
    job = json.loads((folder / "job.json").read_text())
    spark = session("faults", **SETTINGS | job["conf"])
    spark.dataSource.register(dying(folder, job["deaths"]))
    brokers = {"kafka.bootstrap.servers": job["bootstrap"]}
    rows = spark.readStream.format("odradek").options(**brokers, **job["reading"]).load().select("key", "value")
    sink = rows.writeStream.format("odradek").options(**brokers, **job["writing"])
    sink = sink.option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(processingTime="0 seconds").start()


def main(folder: Path) -> None:
    """Ends with the query's own error, if it has one."""
    query = start(folder)
    while not (folder / "stop").exists():
        if query.awaitTermination(PAUSE):  # type: ignore[arg-type]  # seconds may be parts
            return
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
