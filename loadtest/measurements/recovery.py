"""Start-up after kill -9 of everything: compare Odradek with Apache Kafka, on the same logs.

    python -m odradek.loadtest.measurements.recovery --gb 10 --partitions 100

It is also part of `make bench`. Apache Kafka writes the logs and is killed. Then each broker in turn starts on a copy
of that directory: the `.log` files are hard links, so both read the same pages of the same cache; the other files are
copies from after the kill. The clock runs from exec until every partition returns its end offset, which must be the one
before the kill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import psutil

from odradek.loadtest.harness import processes
from odradek.loadtest.harness.brokers import JAVA_OPTIONS, BrokerError, cluster_id, kafka_jars

TOPIC = "recovery"
GIGABYTES, PARTITIONS = 10.0, 100
PIECE = 100_000  # lines of a kilobyte, sent by one kcat
START_SECONDS = 600
END_SECONDS = 60
_LIST_OFFSETS = 2

_COMMON = """
log.dirs={folder}/data
num.partitions={partitions}
listeners={listeners}
offsets.topic.replication.factor=1
"""
_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
"""


class Cost(NamedTuple):
    """One start: seconds until all partitions respond, and the CPU seconds of all processes."""

    seconds: float
    cpu: float


class Contestant(NamedTuple):
    """A broker: its name, the command that starts it on a properties file, and the signal that ends it."""

    name: str
    command: Callable[[str], list[str]]
    end: signal.Signals


def _java(config: str) -> list[str]:
    return ["java", *JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*", "kafka.Kafka", config]


def _python(config: str) -> list[str]:
    return [sys.executable, "-m", "odradek.broker", "start", config]


KAFKA = Contestant("Apache Kafka", _java, signal.SIGKILL)
ODRADEK = Contestant("Odradek", _python, signal.SIGTERM)  # otherwise its shared memory would stay


def properties(folder: Path, partitions: int, port: int, kraft: bool) -> str:
    """Write server.properties for data in `folder`/data; returns its path."""
    controller = processes.free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port}" + (f",CONTROLLER://127.0.0.1:{controller}" if kraft else "")
    text = _COMMON + (_KAFKA if kraft else "")
    path = folder / "server.properties"
    path.write_text(text.format(folder=folder, partitions=partitions, listeners=listeners, controller=controller))
    return str(path)


def fill(folder: Path, gigabytes: float, partitions: int) -> int:
    """Let Apache Kafka write the logs under `folder` and kill it; returns the sum of the partitions' end offsets."""
    folder.mkdir(parents=True)
    port = processes.free_port()
    config = properties(folder, partitions, port, kraft=True)
    cluster = cluster_id()
    format_ = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", config]
    subprocess.run(["java", "-cp", f"{kafka_jars()}/*", *format_], check=True, capture_output=True)
    lines = folder / "lines.txt"
    lines.write_text("".join(os.urandom(512).hex()[:999] + "\n" for _ in range(1000)) * (PIECE // 1000))
    with _running(KAFKA, config, folder, signal.SIGKILL):
        _await(lambda: _answers(port), "Apache Kafka answers")
        for _ in range(round(gigabytes * 10)):
            _send(port, lines)
        return ends(port, partitions)


def _send(port: int, lines: Path) -> None:
    """Batches of the Java client's default size: 16 KiB."""
    settings = ("batch.size=16384", "linger.ms=5", "sticky.partitioning.linger.ms=0")
    options = [word for setting in settings for word in ("-X", setting)]
    command = ["kcat", "-b", f"127.0.0.1:{port}", "-P", "-t", TOPIC, "-l", *options, str(lines)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def copy(source: Path, target: Path) -> None:
    """Copy `source`/data to `target`/data: hard links of the logs, sparse copies of the rest."""
    target.mkdir(parents=True)
    subprocess.run(["cp", "-al", source / "data", target / "data"], check=True)
    for path in (target / "data").rglob("*"):
        if path.is_file() and path.suffix != ".log":
            path.unlink()
            original = source / path.relative_to(target)
            subprocess.run(["cp", "-a", "--sparse=always", original, path], check=True)


def start(contestant: Contestant, folder: Path, partitions: int, expected: int) -> Cost:
    """Start on the copy under `folder` and end it again. BrokerError when records are missing."""
    port = processes.free_port()
    config = properties(folder, partitions, port, kraft=contestant is KAFKA)
    began = time.monotonic()
    with _running(contestant, config, folder, contestant.end) as process:
        _await(lambda: ends(port, partitions) >= 0, f"{contestant.name} has recovered", process, folder)
        cost = Cost(time.monotonic() - began, processes.cpu_seconds(processes.family(process)))
        found = ends(port, partitions)
    if found != expected:
        raise BrokerError(f"{contestant.name} has {found} records, but {expected} were written")
    return cost


@contextlib.contextmanager
def _running(contestant: Contestant, config: str, folder: Path, how: signal.Signals) -> Iterator[psutil.Popen]:
    """The process; `how` ends it with all its children."""
    process = processes.spawn(contestant.command(config), folder / "broker.log", cwd=folder)
    try:
        yield process
    finally:
        processes.end(process, how, END_SECONDS)


def _await(
    ready: Callable[[], bool], what: str, process: psutil.Popen | None = None, folder: Path | None = None
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            log = (folder / "broker.log").read_text(errors="replace")[-2000:] if folder else ""
            raise BrokerError(f"not seen: {what}\n{log}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            return len(connection.recv(8)) > 0
    except OSError:
        return False


def ends(port: int, partitions: int) -> int:
    """The sum of all partitions' end offsets (ListOffsets v1); -1 while one of them is unknown."""
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    asked = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    body = struct.pack(">hhihii", _LIST_OFFSETS, 1, 1, -1, -1, 1) + name + struct.pack(">i", partitions) + asked
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(4 + 4 + 4 + len(name) + 4 + partitions * 22)
    except OSError:
        return -1
    rows = list(struct.iter_unpack(">ihqq", answer[16 + len(name) :]))
    return sum(row[3] for row in rows) if len(rows) == partitions and not any(row[1] for row in rows) else -1


def measure(folder: Path, gigabytes: float, partitions: int, rounds: int, only: Sequence[str]) -> dict[str, list[Cost]]:
    """Fill once, then start each broker `rounds` times in turn, after one uncounted start of each."""
    expected = fill(folder / "filled", gigabytes, partitions)
    costs: dict[str, list[Cost]] = {}
    for turn in range(rounds + 1):
        for contestant in (KAFKA, ODRADEK):
            if only and contestant.name not in only:
                continue
            copy(folder / "filled", folder / "turn")
            cost = start(contestant, folder / "turn", partitions, expected)
            shutil.rmtree(folder / "turn")
            click.echo(f"round {turn}: {contestant.name:13} {cost.seconds:.1f} s, {cost.cpu:.1f} CPU s", err=True)
            if turn:
                costs.setdefault(contestant.name, []).append(cost)
    return costs


@click.command()
@click.option("--gb", default=GIGABYTES, show_default=True, help="Gigabytes of records.")
@click.option("--partitions", default=PARTITIONS, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Measured starts of each broker.")
@click.option("--only", multiple=True, type=click.Choice([KAFKA.name, ODRADEK.name]), help="Only this broker.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the data (default: a temporary folder).")
def main(gb: float, partitions: int, rounds: int, only: Sequence[str], folder: Path | None) -> None:
    """Measure the start of a broker after kill -9 of all its processes."""
    with tempfile.TemporaryDirectory(prefix="odradek-recovery-", dir=folder) as room:
        try:
            costs = measure(Path(room), gb, partitions, rounds, only)
        except BrokerError as error:
            click.echo(f"recovery: {error}", err=True)
            sys.exit(1)
    for name, found in costs.items():
        seconds, cpu = median(cost.seconds for cost in found), median(cost.cpu for cost in found)
        click.echo(f"{name}: {gb:g} GB in {partitions} partitions: {seconds:.1f} s, {cpu:.1f} CPU s (median)")
    if len(costs) == 2:
        click.echo(f"ratio: {_ratio(costs):.2f} of Apache Kafka's time (goal: 0.5)")


def _ratio(costs: dict[str, list[Cost]]) -> float:
    ours, theirs = (median(cost.seconds for cost in costs[one.name]) for one in (ODRADEK, KAFKA))
    return ours / theirs


if __name__ == "__main__":
    main()
