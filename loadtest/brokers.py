"""The brokers that are measured: each started with its own defaults on a free port, watched from outside.

Both get one partition a topic and a data directory on the same disk; nothing else is set that a user would not
meet. CPU and memory are those of the whole process tree, as the kernel counts them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

START_SECONDS = 60
STOP_SECONDS = 60
KAFKA_VERSION = "4.1.0"
# The heap is kafka-server-start's; so are the collector's settings (kafka-run-class).
_JAVA_OPTIONS = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # length, api key, version, correlation id, no client id

_COMMON = """
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""
_KAFKA = (
    _COMMON
    + """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
"""
)
_ODRADEK = _COMMON + "listeners=PLAINTEXT://127.0.0.1:{port}\n"


class BrokerError(Exception):
    """A broker did not start, or is not there to be started; the message says what to do."""


@dataclass(frozen=True)
class Running:
    """A broker that answers. `start_s`: seconds from exec to its first answer."""

    name: str
    version: str
    port: int
    start_s: float
    process: psutil.Popen

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    def cpu(self) -> float:
        """CPU seconds used so far by all its processes, dead ones included."""
        return sum(map(_cpu_seconds, self._family()))

    def memory(self) -> float:
        """MiB of all its processes; pages that several share are counted once (PSS)."""
        return sum(map(_pss, self._family())) / (1 << 20)

    def _family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def _cpu_seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0  # it ended just now: its parent's children_* has it once it is reaped


def _pss(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.memory_full_info().pss
    return 0


def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars; BrokerError when they were not fetched."""
    cache = Path(os.environ.get("ODRADEK_TEST_CACHE") or ".cache")
    libs = cache / f"kafka-{KAFKA_VERSION}" / "libs"
    if not (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        raise BrokerError(f"no jars in {libs}: run make test-tools, or measure with --only-odradek")
    return libs


@contextlib.contextmanager
def apache_kafka(folder: Path) -> Iterator[Running]:
    """Apache Kafka as one KRaft node with its data under `folder`."""
    java = ["java", *_JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*"]
    port, controller = _free_port(), _free_port()
    config = _write(folder, _KAFKA, port=port, controller=controller)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        ["java", "-cp", java[-1], "kafka.tools.StorageTool", "format", "-t", cluster, "-c", config],
        check=True,
        capture_output=True,
    )
    with _started("Apache Kafka", KAFKA_VERSION, [*java, "kafka.Kafka", config], port, folder) as running:
        yield running


@contextlib.contextmanager
def odradek(folder: Path) -> Iterator[Running]:
    """This tree's Odradek with its data under `folder`."""
    from importlib.metadata import version

    port = _free_port()
    command = [sys.executable, "-m", "odradek.broker", "start", _write(folder, _ODRADEK, port=port)]
    with _started("Odradek", version("odradek"), command, port, folder) as running:
        yield running


def _write(folder: Path, template: str, **values: int) -> str:
    folder.mkdir(parents=True)
    config = folder / "server.properties"
    config.write_text(template.format(data=folder / "data", **values))
    return str(config)


@contextlib.contextmanager
def _started(name: str, version: str, command: Sequence[str], port: int, folder: Path) -> Iterator[Running]:
    log = folder / "broker.log"
    began = time.monotonic()
    with log.open("wb") as out:
        process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder)
    try:
        _await_answer(process, port, log)
        yield Running(name, version, port, time.monotonic() - began, process)
    finally:
        _stop(process)


def _await_answer(process: psutil.Popen, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrokerError(f"it does not answer on port {port}:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(8)) > 0
    except OSError:
        return False


def _stop(process: psutil.Popen) -> None:
    family = process.children(recursive=True) if process.is_running() else []
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        for one in (process, *family):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
