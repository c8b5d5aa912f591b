"""The test's side of a stream of `job.py`: start it, kill it, feed it, wait for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from ...harness.process import command_words, die_with_parent, family, kill_all, living, wait_dead, wait_until
from .checker import ids

JOB = Path(__file__).with_name("job.py")
TASKS = ["pyspark.daemon", "pyspark.worker"]
START_SECONDS = 120
STOP_SECONDS = 120


class Stream:
    """One query, its folder and all of its processes, including those that have outlived their driver."""

    def __init__(self, folder: Path, broker: Any, source: str, target: str, limit: int = 0, **deaths: str) -> None:
        """`limit` offsets in a batch, 0 for all; `deaths` by point, `t0_1="sent"` for `0-1`, `d2="driver"` for `2`."""
        self.folder, self.target = folder, target
        self._broker = broker
        self._driver: subprocess.Popen[str] | None = None
        self._family: list[psutil.Process] = []
        for name in ("died", "done"):
            (folder / name).mkdir(parents=True)
        reading = {"subscribe": source, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
        self._job: dict[str, Any] = {
            "bootstrap": broker.bootstrap,
            "reading": reading | ({"maxOffsetsPerTrigger": str(limit)} if limit else {}),
            "writing": {"topic": target, "odradek.transactional": "true"},
            "deaths": {point[1:].replace("_", "-"): death for point, death in deaths.items()},
            "conf": {},
        }
        self.change()

    def change(self, **options: dict[str, str]) -> None:
        """Change the next driver's options: those of `reading`, and Spark settings as `conf`."""
        for name, given in options.items():
            self._job[name] |= given
        (self.folder / "job.json").write_text(json.dumps(self._job))

    @property
    def log(self) -> str:
        """The output of its drivers."""
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start a driver, from the checkpoint if there is one."""
        with (self.folder / "log").open("a") as log:
            self._driver = subprocess.Popen(
                [sys.executable, str(JOB), str(self.folder)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )

    def await_file(self, name: str) -> None:
        """Wait until FOLDER/`name` exists; AssertionError with the log if the driver ends before."""
        wait_until(lambda: (self.folder / name).exists() or self._ended(), START_SECONDS, name)
        assert (self.folder / name).exists(), self.log

    def await_rows(self, count: int) -> None:
        """Wait until `count` rows are visible in the target."""

        def enough() -> bool:
            return len(ids(self._broker, self.target)) >= count or self._ended()

        wait_until(enough, START_SECONDS, f"{count} rows in {self.target}:\n{self.log}")
        assert not self._ended(), self.log

    def kill(self) -> None:
        """SIGKILL Java and the Python driver; the workers may notice it or not."""
        assert self._driver is not None
        self._family += family(self._driver.pid)
        for process in family(self._driver.pid):
            with suppress(psutil.NoSuchProcess):  # Java also ends when the driver is dead
                if process.pid == self._driver.pid or process.name() == "java":
                    process.kill()
        self._driver.wait(STOP_SECONDS)
        self._driver = None

    def kill_workers(self) -> int:
        """SIGKILL the Python workers that run tasks, not those that plan; returns their number."""
        assert self._driver is not None
        daemons = [one for one in family(self._driver.pid) if command_words(one)[-2:] == TASKS]
        workers = [child for daemon in living(daemons) for child in living(family(daemon.pid)[1:])]
        kill_all(workers)
        assert not wait_dead(workers)
        return len(workers)

    def finish(self) -> None:
        """Let the query read the rest; AssertionError with the log if it fails."""
        assert self._driver is not None
        (self.folder / "stop").touch()
        status = self._driver.wait(STOP_SECONDS)
        self._driver = None
        assert status == 0, self.log

    def await_stray(self) -> None:
        """Wait until the task that has outlived its driver has tried its write."""
        wait_until(lambda: (self.folder / "strayed").exists(), START_SECONDS, "the stray task has tried its write")

    def close(self) -> None:
        """End all remaining processes."""
        if self._driver is not None:
            self.kill()
        kill_all(self._family)
        wait_dead(self._family)

    def _ended(self) -> bool:
        return self._driver is None or self._driver.poll() is not None


@contextmanager
def opened(stream: Stream) -> Iterator[Stream]:
    """The stream runs within the block."""
    try:
        stream.start()
        yield stream
    finally:
        stream.close()


def feed(
    broker: Any,
    topic: str,
    numbers: Iterable[int],
    partitions: int,
    body: Callable[[str], str] = str,
    key: Callable[[str], str] = str,
) -> list[str]:
    """Write ids to a topic, in turn to each partition, in small batches; returns the ids when all are acknowledged.

    `key` and `body` turn an id into a record's key and value; by default both are the id itself.
    """
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = Producer({**settings, "batch.num.messages": 100, "delivery.report.only.error": True})
    errors: list[Any] = []
    sent = [f"id {number:06d}" for number in numbers]
    for at, one in enumerate(sent):
        producer.produce(topic, body(one), key(one), at % partitions, on_delivery=lambda error, _: errors.append(error))
    assert not producer.flush(60) and not errors, errors[:3]
    return sent
