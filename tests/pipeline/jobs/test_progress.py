"""A job's progress: a JSON line for each batch, bars on a terminal, names in Spark's UI."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.jobs import bars, progress

from ...clients.admin import create_topic
from ..topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream(spark: SparkSession, broker: Any, topic: str, folder: Path, batch: Callable[..., None], **more: str) -> None:
    """Run one batch with all records of the topic."""
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    rows = spark.readStream.format("odradek").options(subscribe=topic, startingOffsets="earliest", **kafka).load()
    with progress.shown(spark, [topic], kafka):
        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(folder))
        if more:
            writer = writer.queryName(more["name"])
        assert writer.trigger(availableNow=True).start().awaitTermination(120)


@pytest.mark.live
def test_each_batch_prints_a_line_of_json(
    spark: SparkSession, broker: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = create_topic(broker)
    send(broker, topic, range(10))

    def batch(frame: Any, _number: int) -> None:
        frame.collect()
        send(broker, topic, range(5))  # during the batch, so they are its lag

    stream(spark, broker, topic, tmp_path, batch)
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"query"' in line]
    seconds = line.pop("seconds")
    assert seconds > 0 and line.pop("rows_per_second") == round(10 / seconds)
    assert line == {"query": topic, "batch": 0, "rows": 10, "offsets": {topic: {"0": 10}}, "lag": 5}


@pytest.mark.live
def test_listener_is_removed_at_the_end(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    before = len(spark.streams._jsqm.listListeners())
    with progress.shown(spark, []):
        assert len(spark.streams._jsqm.listListeners()) == before + 1
    assert len(spark.streams._jsqm.listListeners()) == before


def test_spark_progress_is_converted() -> None:
    """Also sources that are not topics, and batches without a duration."""
    sources = [
        {"endOffset": '{"t": {"0": 3}}'},
        {"endOffset": {"u": {"0": 4}}},
        {"description": "rate", "endOffset": 7},
    ]
    assert progress.batch({"name": None, "batchId": 3, "sources": sources}, "orders") == {
        "query": "orders", "batch": 3, "rows": 0, "rows_per_second": 0, "seconds": 0,
        "offsets": {"t": {"0": 3}, "u": {"0": 4}, "rate": 7},
    }  # fmt: skip


def test_lag_of_an_unreachable_cluster_is_omitted() -> None:
    kafka = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "10"}
    assert progress._lag(kafka, {"t": {"0": 3}}) == {}
    assert progress._lag(kafka, {"rate": 7}) == {}


# -- on a terminal

Run = Callable[[Callable[[], None]], str]


class Terminal:
    """A pseudo-terminal of 60 columns for stderr."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self.err = os.fdopen(slave, "w")
        self._text = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._text += os.read(self._master, 4096)
            except OSError:  # the other end is closed
                return

    def close(self) -> str:
        """Close it; returns everything that was written."""
        self.err.close()
        self._reader.join()
        os.close(self._master)
        return self._text.decode()


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a function with a terminal as stderr instead of pytest's; returns its output there."""

    def run(function: Callable[[], None]) -> str:
        terminal = Terminal()
        try:
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stderr", terminal.err)
                patched.delenv("COLUMNS", raising=False)
                function()
        finally:
            text = terminal.close()
        return text

    return run


@pytest.mark.live
def test_terminal_shows_progress_bars(spark: SparkSession, broker: Any, tmp_path: Path, on_terminal: Run) -> None:
    """Tasks end at different times, because Spark counts the second of two events within 100 ms with the next one."""
    topic = create_topic(broker)
    send(broker, topic, range(10))

    def batch(frame: Any, _number: int) -> None:
        frame.collect()
        frame.sparkSession.sparkContext.parallelize([0.5, 1.5, 3.0, 4.0], 4).foreach(time.sleep)

    text = on_terminal(lambda: stream(spark, broker, topic, tmp_path, batch, name="orders"))
    assert re.search(r"\[#{7,22}\.{8,23}\] [123]/4 tasks", text), text
    last = text.rpartition("\x1b[J")[2]
    assert last.startswith("orders: batch 0, 10 rows in ") and last.endswith("/s, 0 behind\r\n")
    assert "{" not in text
    assert max(len(line) for line in text.replace("\x1b[J", "\n").replace("\x1b[1A", "\n").splitlines()) < 60


def test_batches_are_formatted_as_a_line() -> None:
    facts = {"query": "t", "batch": 3, "rows": 12345, "seconds": 1.25, "rows_per_second": 9876, "offsets": {}}
    assert bars.line(facts) == "t: batch 3, 12,345 rows in 1.2 s, 9,876/s"
    assert bars.line(facts | {"lag": 1000}).endswith(", 1,000 behind")
    assert [bars.bar(0, 0), bars.bar(3, 3)] == ["", f"[{'#' * 30}] 3/3 tasks"]


def test_end_of_a_job_prints_a_line_of_json(capfd: pytest.CaptureFixture[str]) -> None:
    progress.done("restore", rows=1000, rows_per_second=12.5, topic="t")
    assert json.loads(capfd.readouterr().err) == {"job": "restore", "rows": 1000, "rows_per_second": 12.5, "topic": "t"}


def test_end_of_a_job_prints_text_on_a_terminal(on_terminal: Run) -> None:
    text = on_terminal(lambda: progress.done("restore", rows=1000, rows_per_second=12.5))
    assert text == "restore: 1,000 rows, 12.5 rows per second\r\n"


# -- Spark's UI


@pytest.mark.live
def test_spark_jobs_have_descriptions_in_the_ui(spark: SparkSession) -> None:
    with progress.described(spark, "archive: orders"):
        with progress.described(spark, "archive: inner"):
            spark.range(1).collect()
        spark.range(1).collect()
    spark.range(1).collect()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    told = [jobs.apply(at).description() for at in range(3)]  # the newest first
    assert [one.get() if one.isDefined() else None for one in told] == [None, "archive: orders", "archive: inner"]
