"""The loads: what kcat is asked to send or to read, and what it cost the broker.

kcat is a thin C program over librdkafka, so on a small machine the client takes little from the broker. A load's
topic is made and written to once before the clock starts, and its end offset is compared afterwards: a broker that
loses a message gets no figure.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from odradek.loadtest.brokers import Running

KCAT_SECONDS = 300


class LoadError(Exception):
    """A load did not do what it should; no figure comes of it."""


@dataclass(frozen=True)
class Load:
    """One row of the report: each of `clients` sends `messages` of `size` bytes with these librdkafka `settings`."""

    key: str
    title: str
    messages: int
    size: int
    settings: tuple[str, ...]
    reads: bool = False
    clients: int = 1


@dataclass(frozen=True)
class Cost:
    """What one run took: messages, seconds, and CPU seconds of the broker and of the client."""

    messages: int
    size: int
    seconds: float
    broker_cpu: float
    client_cpu: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Broker CPU a message, microseconds."""
        return self.broker_cpu / self.messages * 1e6

    @property
    def cpu_per_gb(self) -> float:
        """Broker CPU seconds for 10⁹ bytes of message values."""
        return self.broker_cpu / (self.messages * self.size) * 1e9


def _batches(count: int, *more: str) -> tuple[str, ...]:
    return (f"batch.num.messages={count}", "acks=1", "linger.ms=5", *more)


_IDEMPOTENT = ("enable.idempotence=true", "acks=all")
FIRST = "one-many"
LOADS = (
    Load(FIRST, "200 B, batch 1, acks=1, many in flight", 100_000, 200, _batches(1)),
    Load("one-five", "… five in flight", 60_000, 200, _batches(1, "max.in.flight=5")),
    Load("one-idempotent", "… five in flight, idempotent", 60_000, 200, _batches(1, *_IDEMPOTENT)),
    Load("one-one", "… one in flight", 30_000, 200, _batches(1, "max.in.flight=1")),
    Load("one-one-20", "… 20 producers, one in flight each", 5_000, 200, _batches(1, "max.in.flight=1"), clients=20),
    Load("fifty", "200 B, batch 50, acks=1", 1_000_000, 200, _batches(50)),
    Load("fifty-idempotent", "… idempotent", 1_000_000, 200, _batches(50, *_IDEMPOTENT)),
    Load("full", "1 KB, full batches", 500_000, 1000, _batches(10_000)),
    Load("read", "consume 1 KB records from the start", 500_000, 1000, (), reads=True),
)


class Lines:
    """Files of random lines for kcat to send, made once for each length."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, messages: int, size: int) -> Path:
        """A file of `messages` lines of `size` bytes each, without the newline."""
        path = self._folder / f"{messages}x{size}.txt"
        if not path.exists():
            block = "".join(os.urandom(size // 2 + 1).hex()[:size] + "\n" for _ in range(min(messages, 1000)))
            path.write_text(block * (messages // min(messages, 1000)))
        return path


def run(load: Load, broker: Running, lines: Lines, scale: float = 1) -> Cost:
    """Do `load`, or `scale` of it, against `broker`; LoadError when kcat fails or a message is missing."""
    each = max(1000, round(load.messages * scale / 1000) * 1000)
    messages = each * load.clients
    topic = f"bench-{load.key}-{uuid.uuid4().hex[:8]}"
    source = lines.file(each, load.size)
    _send(broker, topic, lines.file(1, load.size), ())
    if load.reads:
        _send(broker, topic, source, load.settings)
        cost = _measured(lambda: _read(broker, topic, messages), broker, messages, load.size)
    else:
        cost = _measured(lambda: _send_all(load, broker, topic, source), broker, messages, load.size)
    _check_end(broker, topic, messages + 1)
    return cost


def _send_all(load: Load, broker: Running, topic: str, source: Path) -> None:
    with ThreadPoolExecutor(load.clients) as clients:
        running = [clients.submit(_send, broker, topic, source, load.settings) for _ in range(load.clients)]
    for one in running:
        one.result()


def _measured(work: Callable[[], object], broker: Running, messages: int, size: int) -> Cost:
    client, cpu, began = _children_cpu(), broker.cpu(), time.monotonic()
    work()
    seconds = time.monotonic() - began
    return Cost(messages, size, seconds, broker.cpu() - cpu, _children_cpu() - client)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _send(broker: Running, topic: str, source: Path, settings: tuple[str, ...]) -> None:
    options = [word for setting in settings for word in ("-X", setting)]
    _kcat(broker, "-P", "-t", topic, "-p", "0", "-l", *options, str(source))


def _read(broker: Running, topic: str, messages: int) -> None:
    _kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(messages + 1), "-q")


def _check_end(broker: Running, topic: str, expected: int) -> None:
    found = _kcat(broker, "-Q", "-t", f"{topic}:0:-1", output=True).split()
    if not found or found[-1] != str(expected):
        raise LoadError(f"{broker.name}: {topic} should end at {expected}, but says {found}")


def _kcat(broker: Running, *words: str, output: bool = False) -> str:
    try:
        done = subprocess.run(
            ["kcat", "-b", broker.bootstrap, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=KCAT_SECONDS,
        )
    except FileNotFoundError:
        raise LoadError("no kcat here: apt-get install kcat") from None
    except subprocess.TimeoutExpired:
        raise LoadError(f"{broker.name}: kcat {words[0]} took more than {KCAT_SECONDS} s") from None
    if done.returncode:
        raise LoadError(f"{broker.name}: kcat {' '.join(words)}: {done.stderr.decode(errors='replace')[-1000:]}")
    return done.stdout.decode() if output else ""
