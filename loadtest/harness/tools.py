"""Tools from outside Python for the bench, found, fetched or compiled into the cache. Errors name a missing one."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parents[1]  # the sources of the clients
KAFKA_VERSION = "4.1.0"


class BrokerError(Exception):
    """A broker did not start, or a tool is missing; the message says what to do."""


def say(text: str) -> None:
    """Print progress to standard error."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def cache() -> Path:
    """The folder for fetched and compiled files: ODRADEK_TEST_CACHE, else .cache next to the sources."""
    return Path(os.environ.get("ODRADEK_TEST_CACHE") or HERE.parent / ".cache").absolute()


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder of Apache Kafka's jars; BrokerError when they are missing."""
    libs = cache() / f"kafka-{version}" / "libs"
    if not (libs / f"kafka_2.13-{version}.jar").exists():
        raise BrokerError(f"no jars in {libs}: run make test-tools, or measure with --brokers odradek")
    if not shutil.which("java"):
        raise BrokerError("java is missing: apt-get install default-jre-headless, or measure with --brokers odradek")
    return libs


def connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector; BrokerError when they are missing."""
    jars = sorted((cache() / "spark-4.2").glob("*.jar"))
    if len(jars) < 4:
        raise BrokerError(f"no jars in {cache() / 'spark-4.2'}: run make test-tools")
    return jars


def rabbitmq() -> Path:
    """The folder with Debian's RabbitMQ, which rabbitmq.sh unpacks there at first use; BrokerError when it cannot."""
    home = cache() / "rabbitmq"
    done = subprocess.run([HERE / "rabbitmq.sh", home], capture_output=True, text=True)
    if done.returncode:
        raise BrokerError(f"RabbitMQ is missing, measure with --brokers odradek,kafka: {done.stderr.strip()}")
    return home


def client(name: str) -> Path:
    """The load client `name`, compiled from its C source when the source is newer."""
    program = cache() / "loadtest" / name
    source = HERE / f"{name}.c"
    newest = max(path.stat().st_mtime for path in (source, HERE / "client.h"))
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        _compile(source, program)
    return program


def touch_memory(size: int) -> None:
    """Make the machine own `size` bytes of free memory, and some more, before a load fills them.

    A virtual machine may have given its free memory back to the host. The first touch of each page then costs one to
    two microseconds a kilobyte, ten times a broker's cost of writing it, and the first broker would pay for it.
    """
    size = min(size + size // 4, psutil.virtual_memory().available // 2)
    if size > 0:
        with mmap.mmap(-1, size) as room:
            for at in range(0, size, mmap.PAGESIZE):
                room[at] = 1


def _compile(source: Path, program: Path) -> None:
    fresh = program.with_suffix(f".{os.getpid()}")  # renamed when complete: two benches may compile at once
    command = ["cc", "-O2", "-Wall", "-o", str(fresh), str(source), *_libraries(source.stem), "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise BrokerError("a C compiler is missing: apt-get install gcc libc6-dev") from None
    if done.returncode:
        hint = "apt-get install librdkafka-dev\n" if "rdkafka" in done.stderr else ""
        raise BrokerError(f"{source.name} does not compile: {hint}{done.stderr[-2000:]}")
    fresh.replace(program)


def _libraries(name: str) -> list[str]:
    if name == "client":
        return ["-lrdkafka"]
    if name == "amqp":
        root = rabbitmq() / "root" / "usr"
        folder = next(root.glob("lib/*/librabbitmq.so")).parent
        return [f"-I{root}/include", f"-L{folder}", "-lrabbitmq", f"-Wl,-rpath,{folder}"]
    return []
