"""A job's progress on a terminal: a line for each query's last batch, and a bar of Spark's running tasks."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 0.5  # seconds
_WIDTH = 30
_UP, _CLEAR = "\x1b[{}A", "\x1b[J"


class Bars:
    """Redraws the lines in place, until `close`."""

    def __init__(self, spark: SparkSession, out: TextIO) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._out, self._lines, self._drawn = out, dict[str, str](), list[str]()
        self._lock, self._closing = threading.Lock(), threading.Event()
        _no_bars_of_spark(spark)
        self._thread = threading.Thread(target=self._run, name="bars", daemon=True)
        self._thread.start()

    def tell(self, facts: dict[str, Any]) -> None:
        """Show a finished batch: `progress.batch`."""
        with self._lock:
            self._lines[facts["query"]] = line(facts)

    def close(self) -> None:
        """The last lines stay, without the bar."""
        self._closing.set()
        self._thread.join()
        self._draw("")

    def _run(self) -> None:
        while not self._closing.wait(_EVERY):
            self._draw(bar(*self._tasks()))

    def _tasks(self) -> tuple[int, int]:
        """Finished tasks and all tasks of the running stages."""
        infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        found = [(info.numCompletedTasks, info.numTasks) for info in infos if info]
        return sum(done for done, _ in found), sum(all_ for _, all_ in found)

    def _draw(self, below: str) -> None:
        with self._lock:
            lines = [*self._lines.values(), *([below] if below else [])]
        if lines != self._drawn:
            width = os.get_terminal_size(self._out.fileno()).columns - 1
            up = _UP.format(len(self._drawn)) if self._drawn else ""
            self._out.write(f"{up}\r{_CLEAR}" + "".join(f"{line[:width]}\n" for line in lines))
            self._out.flush()
            self._drawn = lines


def line(facts: dict[str, Any]) -> str:
    """A batch in words."""
    lag = f", {facts['lag']:,} behind" if facts.get("lag") is not None else ""
    return (
        f"{facts['query']}: batch {facts['batch']}, {facts['rows']:,} rows in {facts['seconds']:.1f} s, "
        f"{facts['rows_per_second']:,}/s{lag}"
    )


def bar(done: int, count: int) -> str:
    """The bar; empty where no task runs."""
    if not count:
        return ""
    filled = _WIDTH * done // count
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{count} tasks"


def _no_bars_of_spark(spark: SparkSession) -> None:
    """Stop Spark's own bar, which would overwrite ours."""
    own = spark.sparkContext._jsc.sc().progressBar()
    if own.isDefined():
        own.get().stop()
