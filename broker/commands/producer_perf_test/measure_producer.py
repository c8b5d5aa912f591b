"""Implements `odradek producer-perf-test`; the output lines are those of Kafka's ProducerPerformance."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from kafka import KafkaProducer
from kafka.errors import KafkaError

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.metrics import print_metrics
from odradek.broker.commands._shared.pace import pacing
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.errors import FAILED, OK, OdradekError

REPORT_MS = 5000
SAMPLES = 500_000
WINDOW = 50_000  # records in flight: KafkaProducer itself has no limit
MB = 1024 * 1024


def run(options: Mapping[str, Any], properties: Mapping[str, str]) -> int:
    """Send and measure; returns the exit code."""
    register()
    config = client_config(properties, KafkaProducer.DEFAULT_CONFIG)
    config["bootstrap_servers"] = properties["bootstrap.servers"].split(",")
    config.setdefault("client_id", "perf-producer-client")
    config["metrics_enabled"] = options["print_metrics"]
    payloads = _payloads(options)
    try:
        producer = KafkaProducer(**config)
    except (KafkaError, ValueError, AssertionError) as error:
        raise OdradekError(f"no producer for {properties['bootstrap.servers']}: {error}") from error
    stats = Stats(options["num_records"])
    try:
        _send_all(producer, options, payloads, stats)
    finally:
        producer.flush()
        stats.print_total()
        if options["print_metrics"]:
            print_metrics(producer.metrics())
        producer.close()
    return FAILED if stats.failures else OK


def _payloads(options: Mapping[str, Any]) -> Iterator[bytes]:
    if options["payload_monotonic"]:
        return (b"%d" % number for number in itertools.count())
    choose = random.Random(0)
    if options["payload_file"]:
        return _from_file(options, choose)
    return _letters(options["record_size"], choose)


def _letters(size: int, choose: random.Random) -> Iterator[bytes]:
    """Slices of one random block: different payloads without a cost per byte."""
    block = bytes(choose.choices(range(65, 91), k=size + 9973))
    while True:
        start = choose.randrange(9973)
        yield block[start : start + size]


def _from_file(options: Mapping[str, Any], choose: random.Random) -> Iterator[bytes]:
    path = Path(options["payload_file"]).absolute()
    delimiter = options["payload_delimiter"].replace("\\n", "\n").encode()
    click.echo(f"Reading payloads from: {path}")
    try:
        payloads = path.read_bytes().removesuffix(delimiter).split(delimiter)
    except OSError as error:
        raise OdradekError(f"cannot read {path}: {error.strerror}") from None
    if payloads == [b""]:
        raise OdradekError(f"{path} is empty")
    click.echo(f"Number of messages read: {len(payloads)}")
    return (choose.choice(payloads) for _ in itertools.count())


def _send_all(producer: KafkaProducer, options: Mapping[str, Any], payloads: Iterator[bytes], stats: Stats) -> None:
    transaction = _transaction(producer, options["transaction_ms"])
    pace = pacing(options["throughput"])
    for number in range(options["num_records"]):
        transaction(False)
        _send(producer, options["topic"], next(payloads), stats)
        pace(number + 1)
        while number - stats.done > WINDOW:
            time.sleep(0.001)
    transaction(True)


def _send(producer: KafkaProducer, topic: str, payload: bytes, stats: Stats) -> None:
    started = time.monotonic()
    try:
        future = producer.send(topic, payload)
    except KafkaError as error:
        stats.failed(error)
        return
    future.add_callback(stats.record, started, len(payload))
    future.add_errback(stats.failed)


def _transaction(producer: KafkaProducer, duration_ms: int | None) -> Callable[[bool], None]:
    """A function that begins transactions, and commits them after `duration_ms` or at the end; a no-op without any."""
    if duration_ms is None:
        return lambda last: None
    producer.init_transactions()
    began: list[float] = []

    def step(last: bool) -> None:
        if began and (last or (time.monotonic() - began[0]) * 1000 >= duration_ms):
            producer.commit_transaction()
            began.clear()
        if not began and not last:
            producer.begin_transaction()
            began.append(time.monotonic())

    return step


class Stats:
    """Counts and latencies (ms), in total and since the last report; updated by the producer's own thread."""

    def __init__(self, records: int) -> None:
        self.failures = 0
        self.count = self.bytes = 0
        self._started = self._window_started = time.monotonic()
        self._every = max(1, records // SAMPLES)
        self._latencies: list[float] = []
        self._sum = self._max = 0.0
        self._window = [0, 0, 0.0, 0.0]  # count, bytes, sum and maximum of latencies

    @property
    def done(self) -> int:
        """The number of records that were acknowledged or failed."""
        return self.count + self.failures

    def record(self, started: float, size: int, _metadata: Any) -> None:
        """Count an acknowledged record."""
        now = time.monotonic()
        latency = (now - started) * 1000
        if self.count % self._every == 0:
            self._latencies.append(latency)
        self.count += 1
        self.bytes += size
        self._sum += latency
        self._max = max(self._max, latency)
        count, total, latencies, highest = self._window
        self._window = [count + 1, total + size, latencies + latency, max(highest, latency)]
        if (now - self._window_started) * 1000 >= REPORT_MS:
            self._report(now)

    def failed(self, error: BaseException) -> None:
        """Count a failed record; print the first ten errors."""
        self.failures += 1
        if self.failures <= 10:
            click.echo(f"ERROR {error}", err=True)

    def _report(self, now: float) -> None:
        count, total, latencies, highest = self._window
        elapsed = now - self._window_started
        click.echo(
            f"{count} records sent, {count / elapsed:.1f} records/sec ({total / elapsed / MB:.2f} MB/sec), "
            f"{latencies / count:.1f} ms avg latency, {highest:.1f} ms max latency."
        )
        self._window, self._window_started = [0, 0, 0.0, 0.0], now

    def print_total(self) -> None:
        """Print the line for the whole run."""
        elapsed = max(time.monotonic() - self._started, 1e-6)
        ordered = sorted(self._latencies) or [0.0]
        parts = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
        shown = ", ".join(f"{ordered[int(p * len(ordered))]:.0f} ms {name}" for p, name in parts)
        click.echo(
            f"{self.count} records sent, {self.count / elapsed:.1f} records/sec "
            f"({self.bytes / elapsed / MB:.2f} MB/sec), {self._sum / max(1, self.count):.2f} ms avg latency, "
            f"{self._max:.2f} ms max latency, {shown}."
        )
