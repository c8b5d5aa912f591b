"""How a job ends: normally, by an error in one line, or by Ctrl-C or SIGTERM with its streams and Spark stopped.

A job runs in a separate thread, because a main thread that waits for Java's response could not stop anything: py4j has
one connection per thread, which is busy until the response arrives.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any

import click

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.causes import cause, expected

log = logging.getLogger(__name__)

FAILED, INTERRUPTED = 1, 130
_PATIENCE = 20  # seconds that a job has to end after its streams were stopped, and again after Spark was stopped
_asked = threading.Event()


def run(command: click.Command, name: str, arguments: list[str]) -> int:
    """Run a command with these arguments; returns its exit code, and prints its error to stderr.

    Does not return if the command does not end after a signal.
    """
    _log()
    ended: list[int] = []
    wakeups: SimpleQueue[int] = SimpleQueue()  # signals, and 0 when the job has ended

    def work() -> None:
        try:
            ended.append(_outcome(command, name, arguments))
        finally:
            wakeups.put(0)

    # An exception raised by a handler could hit any point in threading; calling `put` there is safe.
    _handle_signals(lambda number, _: wakeups.put(number))
    job = threading.Thread(target=work, name=name, daemon=True)
    job.start()
    number = wakeups.get()
    _handle_signals(signal.SIG_IGN)
    if number:
        return _after_signal(job, number)
    _stop_spark()
    return ended[0] if ended else FAILED


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _log() -> None:
    """Our warnings in one line each; py4j would print the traceback of an error that `_outcome` reports."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _outcome(command: click.Command, name: str, arguments: list[str]) -> int:
    context = None
    try:
        with command.make_context(name, arguments) as context:
            command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        if not _asked.is_set():
            _tell(error, name, context)
        return FAILED
    return 0


def _tell(error: Exception, name: str, context: click.Context | None) -> None:
    called = f"{name} {context.invoked_subcommand}" if context and context.invoked_subcommand else name
    if not expected(error):
        log.error("a mistake of this program", exc_info=error)
    click.echo(f"{called}: {cause(error)}", err=True)


def _after_signal(job: threading.Thread, number: int) -> int:
    """Exits directly while the job runs: the interpreter's shutdown aborts where a thread holds the lock of stdout."""
    status = _end(job, number)
    if job.is_alive():
        atexit._run_exitfuncs()
        os._exit(status)
    return status


def _end(job: threading.Thread, number: int) -> int:
    """After a signal: stop streams, then jobs, then Spark. Ctrl-C is a stream's normal end, but fails other jobs."""
    _asked.set()
    spark, streams = _running(), False
    if spark is not None:
        spark.sparkContext.setLogLevel("OFF")  # stopping logs errors
        streams = _stop_streams(spark)
        spark.sparkContext.cancelAllJobs()
        job.join(_PATIENCE)
        _stop_spark()
        job.join(_PATIENCE)
    if number == signal.SIGTERM:
        return 128 + number
    return 0 if streams else INTERRUPTED


def started() -> None:
    """Call after the start of a session. Raises PipelineError where a signal asked the process to end meanwhile."""
    if _asked.is_set():
        raise PipelineError("ended before it started")


def _running() -> Any:
    """The session of this process, or None; does not import pyspark."""
    module = sys.modules.get("pyspark.sql")
    return module.SparkSession._instantiatedSession if module else None


def _stop_streams(spark: Any) -> bool:
    """Stop all streams; returns whether there were any."""
    active = spark.streams.active
    for query in active:
        query.stop()
    return bool(active)


def _stop_spark() -> None:
    spark = _running()
    if spark is not None:
        _stop_streams(spark)
        spark.stop()
