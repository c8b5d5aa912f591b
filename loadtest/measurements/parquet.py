"""A topic to Parquet by Spark: compare the source `odradek` with Spark's own Kafka connector, in one run.

The same records are on both brokers, in four partitions. All ways write the columns of the Kafka source, compressed
with snappy. In `direct` ways the tasks write what they read (option odradek.parquet); the others are a frame's
`write.parquet`, with rows through the JVM. CPU is that of the JVM, driver and executor, of Python, and of the broker.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import psutil

from odradek.loadtest.harness import processes
from odradek.loadtest.harness.brokers import Broker
from odradek.loadtest.harness.load_clients import Call, LoadError, run
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say, touch_memory
from odradek.loadtest.measurements.curves import Bench

PARTITIONS = 4
TOPIC = "to-parquet"


class Load(NamedTuple):
    """`records` records of `size` bytes."""

    records: int
    size: int


class Way(NamedTuple):
    """A way from a topic to Parquet: the broker that has it, and Spark's options."""

    broker: str  # its key
    format: str
    options: Mapping[str, str]
    direct: bool = False


LOADS = {"parquet-200b": Load(5_000_000, 200), "parquet-5gb": Load(5_000_000, 1000)}
WAYS = {
    "odradek, files, direct": Way("odradek", "odradek", {"odradek.local": "only"}, True),
    "odradek, wire, direct": Way("odradek", "odradek", {"odradek.local": "off"}, True),
    "odradek, files": Way("odradek", "odradek", {"odradek.local": "only"}),
    "odradek, wire": Way("odradek", "odradek", {"odradek.local": "off"}),
    "kafka, on Odradek": Way("odradek", "kafka", {}),
    "kafka, on Apache Kafka": Way("kafka", "kafka", {}),
}


class Spark:
    """`to_parquet` in a separate process. A context manager: it and its JVM do not outlive the block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "odradek.loadtest.measurements.to_parquet", str(folder)]
        self._log = folder / "spark.log"
        with self._log.open("wb") as log:
            self._process = psutil.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        if self._answer() != "ready":
            raise LoadError(f"Spark does not start: {self._last_words()}")

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *error: object) -> None:
        everyone = processes.family(self._process)
        cast(IO[str], self._process.stdin).close()
        psutil.wait_procs(everyone, timeout=20)
        for one in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()

    def write(self, way: Way, server: str, records: int) -> dict[str, float]:
        """One round: the result of `to_parquet`, and CPU seconds of its `jvm` and `python`. LoadError if it fails."""
        options = {**way.options, "kafka.bootstrap.servers": server, "subscribe": TOPIC}
        asked = {"format": way.format, "options": options, "direct": way.direct, "rows": records}
        before = self._cpu()
        cast(IO[str], self._process.stdin).write(json.dumps(asked) + "\n")
        cast(IO[str], self._process.stdin).flush()
        line = self._answer()
        if not line:
            raise LoadError(f"{way.format}: {self._last_words()}")
        written: dict[str, float] = json.loads(line)
        return written | {name: seconds - before[name] for name, seconds in self._cpu().items()}

    def _cpu(self) -> dict[str, float]:
        """Driver and executor are one JVM here; Python includes the driver's and the tasks'."""
        family = processes.family(self._process)
        jvm = sum(sum(one.cpu_times()[:2]) for one in family if one.name() == "java")
        return {"jvm": jvm, "python": processes.cpu_seconds(family) - jvm}

    def _answer(self) -> str:
        return cast(IO[str], self._process.stdout).readline().strip()

    def _last_words(self) -> str:
        self._process.wait(60)
        return self._log.read_text(errors="replace")[-2000:]


def measure(kinds: Sequence[type[Broker]], key: str, bench: Bench) -> Entry:
    """All ways in turn, after one warm-up round; without those of brokers that are not in `kinds`."""
    load = LOADS[key]
    records = max(10_000, round(load.records * bench.scale))
    entry = Entry({}, bench.rounds, bench.scale)
    with contextlib.ExitStack() as stack:
        brokers = {kind.key: stack.enter_context(_filled(kind, bench, load, records)) for kind in kinds if _has(kind)}
        spark = stack.enter_context(Spark(bench.folder / "spark"))
        stack.callback(shutil.rmtree, bench.folder / "spark", ignore_errors=True)
        for turn in range(bench.rounds + 1):
            for name, way in WAYS.items():
                if way.broker in brokers:
                    told = _round(spark, way, brokers[way.broker], records + 1)
                    cpu = ", ".join(f"{told[f'{whose}_us']:.2f} µs of {whose}" for whose in ("jvm", "python", "broker"))
                    say(f"{key} {turn or 'warm-up'}: {name} {told['rate']:,.0f} records/s, {cpu}")
                    if turn:
                        entry.data.setdefault(name, []).append(told)
    return entry


def _has(kind: type[Broker]) -> bool:
    return kind.key in {way.broker for way in WAYS.values()}


def _round(spark: Spark, way: Way, broker: Broker, records: int) -> dict[str, float]:
    before = broker.cpu()
    told = spark.write(way, broker.bootstrap, records)
    costs = {"jvm": told["jvm"], "python": told["python"], "broker": broker.cpu() - before}
    each = {f"{whose}_us": seconds / records * 1e6 for whose, seconds in costs.items()}
    return {"rate": records / told["seconds"], **told, **each}


@contextlib.contextmanager
def _filled(kind: type[Broker], bench: Bench, load: Load, records: int) -> Iterator[Broker]:
    """A broker with the records; the client's warm-up adds one more."""
    with bench.started(kind, f"parquet-{kind.key}", num_partitions=PARTITIONS) as broker:
        broker.create(TOPIC, PARTITIONS)
        touch_memory(records * load.size)
        numbers = {"messages": records, "size": load.size, "partitions": PARTITIONS}
        run(Call("client", "produce", numbers, ("linger.ms=5", "acks=1")), broker, TOPIC)
        yield broker
