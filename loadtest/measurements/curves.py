"""The cost of a request as a broker grows: partitions, connections, retained data, workers, and readers of cold data.

Every point is the median of some rounds of the plain-socket client with batch 1, on a separate broker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import ApacheKafka, Broker, Odradek
from odradek.loadtest.harness.load_clients import Call, Client, Cost, run, run_rounds
from odradek.loadtest.harness.tools import say

Point = dict[str, float]
Curve = dict[str, list[Point]]
Prepare = Callable[[Path], None]
PARTITIONS = (1, 100, 10_000)
QUICK_PARTITIONS = (1, 100, 1_000)
CONNECTIONS = (1, 100, 5_000)
RETAINED_GB = (0.1, 5.0, 40.0)
KEEP_FREE_GB = 15  # on the disk, while data is retained
COLD_GB = 8.0
REQUESTS = 40_000
TOPICS = 10
TOPIC = "curve"
_FIGURES = ("cpu_us", "rate", "p50", "p99", "p999")


@dataclass(frozen=True)
class Bench:
    """The size of a measurement: `rounds` a point, `scale` of the work, data under `folder`."""

    folder: Path
    rounds: int
    scale: float

    @contextlib.contextmanager
    def started(self, kind: type[Broker], name: str = "curve", **settings: object) -> Iterator[Broker]:
        """A separate broker with these settings (`_` for `.`); it and its data are gone afterwards."""
        folder = self.folder / name
        broker = kind(folder, {name.replace("_", "."): value for name, value in settings.items()})
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
            shutil.rmtree(folder)

    def send(self, **numbers: int) -> Call:
        """The plain-socket producer."""
        counts = {"messages": REQUESTS, "connections": 20, "rounds": self.rounds}
        return Call("raw", "produce", {**counts, **numbers}).scaled(self.scale)

    def point(self, x: float, call: Call, broker: Broker, topic: str = TOPIC) -> Point:
        """The medians of some rounds of `call`."""
        return self.middle(x, run_rounds(call, broker, topic, self.rounds))

    def middle(self, x: float, costs: list[Cost]) -> Point:
        """The medians of `costs` as the point at `x`."""
        point = {"x": x, **{name: round(median(getattr(cost, name) for cost in costs), 3) for name in _FIGURES}}
        say(f"  at {x:g}: " + ", ".join(f"{name} {point[name]:,.1f}" for name in _FIGURES if point[name]))
        return point


def partitions(bench: Bench, kind: type[Broker]) -> Curve:
    """Number of partitions: requests to one of them, and to all. Ten topics, because Kafka creates no larger ones."""
    curve: Curve = {"one partition in use": [], "all partitions in use": []}
    for count in PARTITIONS if bench.scale == 1 else QUICK_PARTITIONS:
        topics = min(count, TOPICS)
        with bench.started(kind, num_partitions=count // topics) as broker:
            for index in range(topics):
                wire.create(broker.port, f"{TOPIC}.{index}", count // topics)
            curve["one partition in use"].append(bench.point(count, bench.send(), broker, f"{TOPIC}.0"))
            spread = bench.send(partitions=count, topics=topics)
            curve["all partitions in use"].append(bench.point(count, spread, broker))
    return curve


def connections(bench: Bench, kind: type[Broker]) -> Curve:
    """Number of open connections: all of them busy with one request each, and twenty busy among idle ones."""
    curve: Curve = {"all busy": [], "20 busy, the others idle": []}
    with bench.started(kind) as broker:
        wire.create(broker.port, TOPIC)
        run_rounds(bench.send(), broker, TOPIC, bench.rounds)  # warms up the JVM
        for count in CONNECTIONS:
            curve["all busy"].append(bench.point(count, bench.send(connections=count), broker))
            some = bench.send(connections=min(count, 20), idle=max(count - 20, 0))
            curve["20 busy, the others idle"].append(bench.point(count, some, broker))
    return curve


def retained(bench: Bench, kind: type[Broker]) -> Curve:
    """Gigabytes already in the partition: producing to it, and reading at its tail."""
    curve: Curve = {"produce": [], "tail fetch": []}
    have = 0.0
    with bench.started(kind) as broker:
        wire.create(broker.port, TOPIC)
        for goal in (size * bench.scale for size in RETAINED_GB):
            reach = min(goal, have + shutil.disk_usage(bench.folder).free / 1e9 - KEEP_FREE_GB)
            fill(broker, TOPIC, reach - have)
            have = reach
            curve["produce"].append(bench.point(round(have, 3), bench.send(), broker))
            costs = [_tail_from_end(bench, broker) for _ in range(bench.rounds)]
            curve["tail fetch"].append(bench.middle(round(have, 3), costs))
    return curve


def _tail_from_end(bench: Bench, broker: Broker) -> Cost:
    numbers = {"rate": 1000, "seconds": 2, "consumers": 1, "from": wire.end(broker.port, TOPIC)}
    return run(Call("raw", "tail", numbers).scaled(bench.scale), broker, TOPIC)


def fill(broker: Broker, topic: str, gigabytes: float) -> None:
    """Write that much in full batches of 1 KB records, and flush it to disk."""
    if gigabytes <= 0:
        return
    numbers = {"messages": round(gigabytes * 1e6), "size": 1000}
    run(Call("client", "produce", numbers, ("acks=1", "linger.ms=5")), broker, topic)
    os.sync()


def workers(bench: Bench, _: type[Broker]) -> Curve:
    """Odradek with one worker and with two: twenty producers on twenty partitions, and all on one."""
    curve: Curve = {"20 partitions": [], "one partition": []}
    for count in (1, 2):
        with bench.started(Odradek, odradek_workers=count, num_partitions=20) as broker:
            wire.create(broker.port, TOPIC, 20)
            curve["20 partitions"].append(bench.point(count, bench.send(partitions=20), broker))
            curve["one partition"].append(bench.point(count, bench.send(), broker))
    return curve


def cold(bench: Bench, kind: type[Broker]) -> Curve:
    """Tail traffic alone, with a reader of a cached backlog, and with a reader whose pages were dropped. x: 0, 1, 2.

    And, as 3, with a reader of another broker's cold backlog: the cost of a busy machine, whichever broker serves it.
    """
    with bench.started(kind) as broker, bench.started(Odradek, "elsewhere") as other:
        for one in (broker, other):
            wire.create(one.port, "backlog")
            fill(one, "backlog", COLD_GB * bench.scale)
        besides: Sequence[tuple[Broker, Prepare] | None] = (
            None, (broker, _nothing), (broker, drop_pages), (other, drop_pages),
        )  # fmt: skip
        costs: list[list[Cost]] = [[] for _ in besides]
        _tail_beside(bench, broker, "tail-first", None)  # warms up the JVM
        for turn in range(bench.rounds):
            for x, beside in enumerate(besides):
                costs[x].append(_tail_beside(bench, broker, f"tail-{x}-{turn}", beside))
    return {"tail p99": [bench.middle(x, found) for x, found in enumerate(costs)]}


def _nothing(_: Path) -> None:
    """The backlog stays cached."""


def drop_pages(folder: Path) -> None:
    """Drop the cached pages of every log under `folder`."""
    os.sync()  # the kernel cannot drop a dirty page
    for path in folder.rglob("*.log"):
        with path.open("rb") as log:
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _tail_beside(bench: Bench, broker: Broker, topic: str, beside: tuple[Broker, Prepare] | None) -> Cost:
    wire.create(broker.port, topic)
    tail = Call("raw", "tail", {"rate": 1000, "seconds": 3, "consumers": 1}).scaled(bench.scale)
    if beside is None:
        return run(tail, broker, topic)
    read, prepare = beside
    prepare(read.folder / "data")
    messages = round(COLD_GB * bench.scale * 1e6)
    with Client(Call("client", "consume", {"messages": messages, "size": 1000}), read, "backlog") as reader:
        reader.go()
        return run(tail, broker, topic)


CURVES: dict[str, tuple[Callable[[Bench, type[Broker]], Curve], tuple[type[Broker], ...]]] = {
    "partitions": (partitions, (Odradek,)),  # Apache Kafka takes minutes to create ten thousand on two cores
    "connections": (connections, (ApacheKafka, Odradek)),
    "retained": (retained, (Odradek,)),
    "workers": (workers, (Odradek,)),
    "cold": (cold, (ApacheKafka, Odradek)),
}
