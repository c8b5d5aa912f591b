"""Runs the C clients: each connects, prints "ready", works after "go", and prints one JSON object.

The broker's CPU is read between "ready" and the result, so no figure includes connecting or a client's warm-up. A
client that fails, or a broker that lost a message, gives no figure.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, cast

from odradek.loadtest.harness.brokers import Broker
from odradek.loadtest.harness.tools import client


class LoadError(Exception):
    """A load failed; it gives no figure."""


@dataclass(frozen=True)
class Call:
    """A client's command line: `numbers` are the client's own settings, `settings` librdkafka's; `secure`: over TLS."""

    program: str
    mode: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    secure: bool = False

    def scaled(self, factor: float) -> Call:
        """The same with that share of its messages and seconds, but with a useful minimum."""
        least = {"messages": 500, "seconds": 1}
        shrunk = {name: max(least[name], round(self.numbers[name] * factor)) for name in least if name in self.numbers}
        return replace(self, numbers={**self.numbers, **shrunk})

    @property
    def size(self) -> int:
        """Bytes a message."""
        return self.numbers.get("size", 200)

    @property
    def sent(self) -> int:
        """Messages that a producing client should leave in the log, without its warm-up."""
        return self.numbers["messages"] * self.numbers.get("producers", 1)


@dataclass(frozen=True)
class Cost:
    """The cost of one run: messages, seconds, CPU seconds of broker and client, and latencies in µs where measured."""

    messages: int
    size: int
    seconds: float
    broker_cpu: float
    client_cpu: float
    p50: float = 0
    p99: float = 0
    p999: float = 0

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

    def as_dict(self) -> dict[str, float]:
        """For the file of results: measured and derived figures."""
        told = {"rate": self.rate, "cpu_us": self.cpu_us, "cpu_per_gb": self.cpu_per_gb}
        return {name: round(value, 4) for name, value in {**asdict(self), **told}.items()}


class Client:
    """A client that is ready to start. A context manager: it does not outlive its block."""

    def __init__(self, call: Call, broker: Broker, topic: str) -> None:
        numbers = [f"{name}={value}" for name, value in call.numbers.items()]
        bootstrap, more = (broker.secure_bootstrap, broker.client_settings()) if call.secure else (broker.bootstrap, [])
        self._words = [str(client(call.program)), call.mode, bootstrap, topic, *numbers, *call.settings, *more]
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ready()

    def ready(self) -> None:
        """Wait until it can start (again)."""
        if self._line() != "ready":
            raise self._failed()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        return cast(IO[str], self._process.stdout).readline().strip()

    def _failed(self) -> LoadError:
        self._process.kill()
        said = self._process.communicate()[1].strip()
        return LoadError(f"{' '.join(self._words[1:])}: {said or 'it ended without output'}")

    def go(self) -> None:
        """Let it start."""
        stdin = cast(IO[str], self._process.stdin)
        stdin.write("go\n")
        stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for its figures."""
        line = self._line()
        if not line:
            raise self._failed()
        return cast(dict[str, Any], json.loads(line))


def run(call: Call, broker: Broker, topic: str) -> Cost:
    """Run `call` against `broker`; LoadError when the client fails."""
    return run_rounds(call, broker, topic, 1)[0]


def run_rounds(call: Call, broker: Broker, topic: str, rounds: int) -> list[Cost]:
    """The same, several times by one client that supports `rounds`."""
    try:
        with Client(call, broker, topic) as one:
            costs = [_measured(one, call, broker)]
            while len(costs) < rounds:
                one.ready()
                costs.append(_measured(one, call, broker))
            return costs
    except LoadError as error:
        raise LoadError(f"{broker.name}: {error}\n{broker.log_tail()[-500:]}") from None


def _measured(one: Client, call: Call, broker: Broker) -> Cost:
    before = broker.cpu()
    one.go()
    found = one.result()
    return Cost(size=call.size, broker_cpu=broker.cpu() - before, **found)


def command(call: Call, broker: Broker, topic: str) -> None:
    """Run a `call` without a result, such as deleting queues."""
    numbers = [f"{name}={value}" for name, value in call.numbers.items()]
    done = subprocess.run([client(call.program), call.mode, broker.bootstrap, topic, *numbers], capture_output=True)
    if done.returncode:
        raise LoadError(f"{broker.name}: {call.mode}: {done.stderr.decode(errors='replace')}")
