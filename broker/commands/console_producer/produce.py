"""Implements `odradek console-producer`."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

import click
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.serializer import Serializer

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.properties import acks, client_config, codec, meant_for
from odradek.broker.commands._shared.tables import progress, progress_done
from odradek.broker.commands.console_producer.lines import LineError, LineMessageReader, lines
from odradek.broker.errors import FAILED, OK, OdradekError

BATCH_BYTES = 256 << 10
ERRORS_SHOWN = 10
# The broker's default of `message.max.bytes`.
MESSAGE_BYTES = 1048588
# KafkaProducer overestimates a record's size; the broker counts exact bytes.
ESTIMATE_SLACK = 16
WAIT_SECONDS = 600
# Memory of a record until it is acknowledged, besides its bytes (a future and its callbacks).
OVERHEAD_BYTES = 600

# options of Kafka's script -> configurations of the client
_MERGED = {
    "timeout": "linger_ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry_backoff_ms",
    "request_timeout_ms": "request_timeout_ms",
    "metadata_expiry_ms": "metadata_max_age_ms",
    "max_block_ms": "max_block_ms",
    "socket_buffer_size": "send_buffer_bytes",
}


def run(options: Mapping[str, Any], properties: Mapping[str, str], how: LineMessageReader) -> int:
    """Send standard input; returns the exit code."""
    register()
    config = producer_config(options, properties)
    _fit_to_topic(config, options, properties)
    sending = RecordSender(config, options, how)
    try:
        _send_all(sending, sys.stdin.buffer, prompt=sys.stdin.isatty())
    finally:
        sending.finish()
    return FAILED if sending.failures else OK


def _send_all(sending: RecordSender, stream: BinaryIO, *, prompt: bool) -> None:
    if prompt:
        click.echo(">", nl=False, err=True)
    for batch in lines(stream):
        sending.send(batch)
        if prompt:
            click.echo(">" * len(batch), nl=False, err=True)
        elif sending.number % 10_000 < len(batch):
            progress(f"{sending.number} lines read")


def producer_config(options: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments for KafkaProducer: the properties, and options for settings without a property."""
    config = client_config(properties, KafkaProducer.DEFAULT_CONFIG)
    config["bootstrap_servers"] = options["bootstrap_server"].split(",")
    config.setdefault("client_id", "console-producer")
    config.setdefault("metrics_enabled", False)
    if options["sync"]:
        config.setdefault("linger_ms", 0)
    for option, key in _MERGED.items():
        if options[option] is not None:
            config.setdefault(key, options[option])
    config.setdefault("batch_size", options["max_partition_memory_bytes"] or options["batch_size"] or BATCH_BYTES)
    if options["compression_codec"]:
        config["compression_type"] = codec(options["compression_codec"])
    if options["request_required_acks"] is not None:
        config["acks"] = _acks(options["request_required_acks"])
    _keep_order(config)
    return config


def _fit_to_topic(config: dict[str, Any], options: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Set size limits so that the client itself refuses lines too large for the broker: the broker's error is fatal to
    an idempotent KafkaProducer, which then fails all later lines. With compression, a line may be much longer."""
    largest = _max_message_bytes(options, properties)
    config["batch_size"] = min(config["batch_size"], largest)
    if config.get("compression_type"):
        largest = max(largest, config["batch_size"] * 1024)
    config.setdefault("max_request_size", largest + ESTIMATE_SLACK)


def _max_message_bytes(options: Mapping[str, Any], properties: Mapping[str, str]) -> int:
    """The topic's `max.message.bytes`; Kafka's default for a topic that does not exist yet."""
    with Cluster(options["bootstrap_server"], meant_for(KafkaAdminClient.DEFAULT_CONFIG, properties)) as cluster:
        try:
            return int(cluster.topic_config(options["topic"])["max.message.bytes"])
        except (OdradekError, KafkaError, KeyError):
            return MESSAGE_BYTES


def _acks(text: str) -> int:
    try:
        return acks(text)
    except ValueError:
        raise click.UsageError(f"--request-required-acks must be 0, 1, -1 or all, not '{text}'") from None


def _keep_order(config: dict[str, Any]) -> None:
    """Keep the order on retries: by sequence numbers, or, where acks rules them out, with one request in flight."""
    if config.get("acks", -1) != -1 or config.get("retries") == 0:
        config.setdefault("enable_idempotence", False)
    if not config.get("enable_idempotence", True):
        config.setdefault("max_in_flight_requests_per_connection", 1)


class RecordSender:
    """Sends records, and tracks the bytes in flight and the failures."""

    def __init__(self, config: dict[str, Any], options: Mapping[str, Any], how: LineMessageReader) -> None:
        if not how.plain:
            config |= {"key_serializer": _NullSerializer(), "value_serializer": _NullSerializer()}
            _allow_null_headers()
        try:
            self.producer = KafkaProducer(**config)
        except (KafkaError, ValueError, AssertionError) as error:
            raise OdradekError(f"no producer for {options['bootstrap_server']}: {error}") from error
        self.topic = options["topic"]
        self.window = 1 if options["sync"] else options["max_memory_bytes"]
        self.how = how
        self.number = 0  # of the line, from 1
        self.failures = 0
        self._waiting: deque[tuple[Any, int]] = deque()
        self._bytes = 0

    def send(self, batch: list[bytes]) -> None:
        """Send lines in order; waits while more bytes than the window are in flight."""
        for line in batch:
            self.number += 1
            future = self._plain(line) if self.how.plain else self._parsed(line)
            if future is not None:
                self._waiting.append((future, len(line) + OVERHEAD_BYTES))
                self._bytes += len(line) + OVERHEAD_BYTES
                if self._bytes >= self.window:
                    self._settle(self.window // 2)
        self._settle_done()

    def _plain(self, line: bytes) -> Any:
        try:
            return self.producer.send(self.topic, line)
        except KafkaError as error:
            return self._failed(error)

    def _parsed(self, line: bytes) -> Any:
        try:
            key, value, headers = self.how.parse(line, self.number)
        except LineError as error:
            raise OdradekError(str(error)) from None
        marked = [(name, _NULL if text is None else text) for name, text in headers]
        try:
            return self.producer.send(self.topic, value=_or_null(value), key=_or_null(key), headers=marked)
        except KafkaError as error:
            return self._failed(error)

    def _settle(self, limit: int) -> None:
        """Wait for the oldest records until at most `limit` bytes are in flight."""
        while self._waiting and self._bytes > limit:
            self._settle_oldest()

    def _settle_done(self) -> None:
        """Check responses that have arrived, so that failures appear at once."""
        while self._waiting and self._waiting[0][0].is_done:
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        future, size = self._waiting.popleft()
        self._bytes -= size
        try:
            future.get(WAIT_SECONDS)
        except KafkaError as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures <= ERRORS_SHOWN:
            click.echo(f"ERROR a message to topic {self.topic} was not sent: {error}", err=True)

    def finish(self) -> None:
        """Send the remaining records, check every response and close."""
        with suppress(KafkaError):  # each record's result is checked below
            self.producer.flush()
        self._settle(0)
        _close(self.producer)
        progress_done()
        if self.failures:
            click.echo(f"{self.failures} messages of {self.number} were not sent.", err=True)


def _close(producer: KafkaProducer) -> None:
    """Close the producer; `close()` flushes first, which fails after a batch was split (kafka-python 3.0.12)."""
    try:
        producer.close()
    except KafkaError:
        producer._sender.initiate_close()
        producer._sender.join(WAIT_SECONDS)
        producer._closed = True


_NULL = b"\0odradek-null"  # compared by identity: KafkaProducer rejects None for both key and value


def _or_null(text: bytes | None) -> bytes:
    return _NULL if text is None else text


class _NullSerializer(Serializer):  # type: ignore[misc]  # kafka-python has no types
    """Replaces the placeholder by None, after KafkaProducer has checked its arguments."""

    def serialize(self, _topic: str, _headers: Any, data: Any) -> bytes | None:
        return None if data is _NULL else data


def _allow_null_headers() -> None:
    """Allow headers with null values, as in Kafka; KafkaProducer rejects them, but its batches accept them."""
    append = DefaultRecordBatchBuilder.append

    def with_nulls(self: Any, offset: int, timestamp: Any, key: Any, value: Any, headers: Any) -> Any:
        real = [(name, None if text is _NULL else text) for name, text in headers]
        return append(self, offset, timestamp, key, value, real)

    DefaultRecordBatchBuilder.append = with_nulls


logging.getLogger("kafka.producer.producer_batch").setLevel(logging.CRITICAL)  # every failure is shown above
