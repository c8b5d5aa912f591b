"""Implements `odradek replay-log-producer`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.commands._shared.properties import client_config, meant_for
from odradek.broker.commands._shared.tables import progress, progress_done
from odradek.broker.errors import FAILED, OK, OdradekError

_SILENCE_S = 10.0  # without a message: consumer.timeout.ms of 0.8's tool
_POLL_MS = 500
_FLUSH_S = 600


def run(options: Mapping[str, Any], source: str, of_consumer: Mapping[str, str], of_producer: Mapping[str, str]) -> int:
    """Copy with several threads; returns the exit code."""
    register()
    config = client_config(meant_for(KafkaConsumer.DEFAULT_CONFIG, of_consumer), KafkaConsumer.DEFAULT_CONFIG)
    config |= {"group_id": None, "auto_offset_reset": "earliest", "metrics_enabled": False}
    shares = _shares(source, config, options)
    sending = client_config(of_producer, KafkaProducer.DEFAULT_CONFIG) | {"metrics_enabled": False}
    sending["bootstrap_servers"] = options["bootstrap_server"].split(",")
    counts = Counts(options["reporting_interval"])
    with ThreadPoolExecutor(len(shares)) as pool:
        done = [pool.submit(_copy, open_consumer(source, config), one, sending, options, counts) for one in shares]
        try:
            for future in done:
                future.result()
        finally:  # also for a signal: the pool waits for its threads
            counts.stopped.set()
    progress_done()
    click.echo(f"Sent {counts.sent} messages", err=True)
    return FAILED if counts.failed else OK


def _shares(source: str, config: Mapping[str, Any], options: Mapping[str, Any]) -> list[list[TopicPartition]]:
    """The partitions of each thread. OdradekError for an unknown topic."""
    consumer = open_consumer(source, config)
    try:
        indexes = sorted(consumer.partitions_for_topic(options["inputtopic"]) or ())
    finally:
        consumer.close()
    if not indexes:
        raise OdradekError(f"--inputtopic: there is no topic {options['inputtopic']}")
    threads = min(options["threads"], len(indexes))
    return [[TopicPartition(options["inputtopic"], i) for i in indexes[turn::threads]] for turn in range(threads)]


class Counts:
    """What all threads have sent; any of them, or a producer's own thread, calls the methods."""

    def __init__(self, interval: int) -> None:
        self.sent = self.failed = 0
        self.stopped = threading.Event()
        self._interval = max(1, interval)
        self._lock = threading.Lock()

    def succeeded(self, _: object) -> None:
        """A message was acknowledged."""
        with self._lock:
            self.sent += 1
            if not self.sent % self._interval:
                progress(f"{self.sent} messages sent")

    def skipped(self, error: BaseException) -> None:
        """A message was not sent; the first errors are printed."""
        with self._lock:
            self.failed += 1
            if self.failed == 1:
                click.echo(f"ERROR a message was skipped: {error}; more such errors are only counted", err=True)


def _copy(
    consumer: KafkaConsumer, partitions: Sequence[TopicPartition], config: Mapping[str, Any],
    options: Mapping[str, Any], counts: Counts,
) -> None:  # fmt: skip
    """Copy some partitions. OdradekError."""
    try:
        producer = KafkaProducer(**config)
    except (KafkaError, ValueError, AssertionError) as error:
        consumer.close()
        raise OdradekError(f"no producer for {options['bootstrap_server']}: {error}") from error
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        for record in _records(consumer, options["messages"], counts.stopped):
            _send(producer, record, options, counts)
        producer.flush(_FLUSH_S)
    finally:
        producer.close()
        consumer.close()


def _records(consumer: KafkaConsumer, most: int, stopped: threading.Event) -> Iterator[Any]:
    """Records until `most` of them (-1: all), until there are none for _SILENCE_S, or until `stopped`."""
    last, left = time.monotonic(), most
    while left and not stopped.is_set() and time.monotonic() - last < _SILENCE_S:
        found = consumer.poll(_POLL_MS, max_records=left if left > 0 else None)
        for records in found.values():
            left -= len(records) if left > 0 else 0
            yield from records
        if found:
            last = time.monotonic()


def _send(producer: KafkaProducer, record: Any, options: Mapping[str, Any], counts: Counts) -> None:
    """Send key and value, as a new record of now; an error counts, and the copy goes on."""
    try:
        future = producer.send(options["outputtopic"], key=record.key, value=record.value)
        future.add_callback(counts.succeeded)
        future.add_errback(counts.skipped)
    except (KafkaError, ValueError, AssertionError) as error:
        counts.skipped(error)
        return
    if options["sync"]:
        try:
            future.get(_FLUSH_S)
        except KafkaError:  # `skipped` has counted it
            return
