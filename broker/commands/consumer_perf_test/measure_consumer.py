"""Implements `odradek consumer-perf-test`; the output lines are those of Kafka's ConsumerPerformance."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from kafka import ConsumerRebalanceListener, KafkaConsumer

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.commands._shared.metrics import print_metrics
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.errors import OK

POLL_MS = 100
POLL_RECORDS = 5000
MB = 1024 * 1024

_COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_JAVA_DATES = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def run(options: Mapping[str, Any], properties: Mapping[str, str]) -> int:
    """Read and measure; returns the exit code."""
    register()
    consumer = _consumer(options, properties)
    if not options["hide_header"]:
        first = "time, threadId" if options["show_detailed_stats"] else "start.time, end.time"
        click.echo(f"{first}, {_COLUMNS}")
    measure = ConsumerStats(options)
    joining = _RebalanceTimer(measure)
    consumer.subscribe([options["topic"]], listener=joining)
    try:
        measure.read(consumer)
        measure.print_total()
        if options["print_metrics"]:
            print_metrics(consumer.metrics())
    finally:
        consumer.close()
    return OK


def _consumer(options: Mapping[str, Any], properties: Mapping[str, str]) -> KafkaConsumer:
    config = client_config(properties, KafkaConsumer.DEFAULT_CONFIG)
    config |= {
        "group_id": options["group"] or f"perf-consumer-{random.randrange(100_000)}",
        "receive_buffer_bytes": options["socket_buffer_size"],
        "max_partition_fetch_bytes": options["fetch_size"],
        "auto_offset_reset": "latest" if options["from_latest"] else "earliest",
        "check_crcs": False,
        "metrics_enabled": options["print_metrics"],
    }
    config.setdefault("client_id", "perf-consumer-client")
    return open_consumer(options["bootstrap_server"], config)


class _RebalanceTimer(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Measures the time from a revocation (or the start) to the next assignment."""

    def __init__(self, measure: ConsumerStats) -> None:
        self._measure = measure
        self._since = time.time()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._since = time.time()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._measure.joined(time.time() - self._since)


class ConsumerStats:
    """Messages and bytes read, in total and since the last line; times in seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.messages = self.bytes = 0
        self._start = self._last = time.time()
        self._last_messages = self._last_bytes = 0
        self._join = self._window_join = 0.0

    def joined(self, seconds: float) -> None:
        """Add the time of a rebalance that has ended."""
        self._join += seconds
        self._window_join += seconds

    def read(self, consumer: KafkaConsumer) -> None:
        """Read until there are enough messages, or none for the time limit."""
        messages, limit = self._options["messages"], self._options["timeout"] / 1000
        last = time.time()
        while self.messages < messages and time.time() - last <= limit:
            found = consumer.poll(POLL_MS, POLL_RECORDS)
            if found:
                last = time.time()
            for records in found.values():
                self.messages += len(records)
                self.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
            self._maybe_report()
        if self.messages < messages:
            click.echo(
                "WARNING: Exiting before consuming the expected number of messages: timeout "
                f"({self._options['timeout']} ms) exceeded. You can use --timeout to wait longer."
            )

    def _maybe_report(self) -> None:
        now = time.time()
        if (now - self._last) * 1000 < self._options["reporting_interval"]:
            return
        if self._options["show_detailed_stats"]:
            messages, size = self.messages - self._last_messages, self.bytes - self._last_bytes
            rates = self._rates(now - self._last, self._window_join, messages, size)
            click.echo(f"{self._date(now)}, 0, {rates}")
        self._last, self._window_join = now, 0.0
        self._last_messages, self._last_bytes = self.messages, self.bytes

    def _rates(self, elapsed: float, joining: float, messages: int, size: int) -> str:
        """The columns after the times: totals so far, rates of the interval."""
        fetching = max(elapsed - joining, 0.001)
        return (
            f"{self.bytes / MB:.4f}, {size / MB / elapsed:.4f}, {self.messages}, {messages / elapsed:.4f}, "
            f"{joining * 1000:.0f}, {fetching * 1000:.0f}, {size / MB / fetching:.4f}, {messages / fetching:.4f}"
        )

    def print_total(self) -> None:
        """Print the line for the whole run, unless each interval has a line."""
        if self._options["show_detailed_stats"]:
            return
        now = time.time()
        rates = self._rates(max(now - self._start, 0.001), self._join, self.messages, self.bytes)
        click.echo(f"{self._date(self._start)}, {self._date(now)}, {rates}")

    def _date(self, moment: float) -> str:
        when = datetime.fromtimestamp(moment)
        pattern = re.sub("|".join(_JAVA_DATES), lambda m: _JAVA_DATES[m.group()], self._options["date_format"])
        return when.strftime(pattern.replace("SSS", f"{when.microsecond // 1000:03d}"))
