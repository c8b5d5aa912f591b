"""Implements `odradek console-consumer`."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from kafka import KafkaConsumer, TopicPartition

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.commands._shared.options import reader_left
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.commands.console_consumer import EARLIEST, LATEST
from odradek.broker.commands.console_consumer.formatters import Format
from odradek.broker.errors import FAILED, OK, OdradekError

POLL_MS = 500
POLL_RECORDS = 5000
_UNPRINTABLE = (ValueError, ArithmeticError, TypeError, struct.error)


def run(options: Mapping[str, Any], properties: Mapping[str, str], show: Format) -> int:
    """Print messages until a limit in the options, Ctrl-C or SIGTERM; returns the exit code."""
    register()
    consumer = _consumer(options, properties)
    printing = RecordPrinter(show, skip=options["skip_message_on_error"])
    try:
        _subscribe(consumer, options)
        for records in _batches(consumer, options["timeout_ms"], options["max_messages"]):
            printing.print(records)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_left()
    finally:
        _end(consumer, printing, options)
    return FAILED if printing.failed else OK


def _end(consumer: KafkaConsumer, printing: RecordPrinter, options: Mapping[str, Any]) -> None:
    consumer.close()
    click.echo(f"Processed a total of {printing.count} messages", err=True)
    if options["enable_systest_events"]:
        click.echo("shutdown_complete")


def _consumer(options: Mapping[str, Any], properties: Mapping[str, str]) -> KafkaConsumer:
    config = client_config(properties, KafkaConsumer.DEFAULT_CONFIG)
    config["group_id"] = options["group"]
    config.setdefault("client_id", "console-consumer")
    config.setdefault("metrics_enabled", False)
    config.setdefault("max_poll_records", POLL_RECORDS)
    if options["isolation_level"]:
        config["isolation_level"] = options["isolation_level"]
    return open_consumer(options["bootstrap_server"], config)


def _subscribe(consumer: KafkaConsumer, options: Mapping[str, Any]) -> None:
    if options["include"]:
        consumer.subscribe(pattern=f"^(?:{options['include'].replace(',', '|')})$")
    elif options["partition"] is None:
        consumer.subscribe([options["topic"]])
    else:
        _assign(consumer, TopicPartition(options["topic"], options["partition"]), options["start"])


def _assign(consumer: KafkaConsumer, partition: TopicPartition, start: int) -> None:
    known = consumer.partitions_for_topic(partition.topic)
    if known is not None and partition.partition not in known:
        raise OdradekError(f"topic {partition.topic} has no partition {partition.partition}")
    consumer.assign([partition])
    if start == EARLIEST:
        consumer.seek_to_beginning(partition)
    elif start == LATEST:
        consumer.seek_to_end(partition)
    else:
        consumer.seek(partition, start)


def _batches(consumer: KafkaConsumer, timeout_ms: int, most: int) -> Iterator[Sequence[Any]]:
    """Lists of records as they arrive, until `most` records or `timeout_ms` without a record (-1: no limit)."""
    left = most if most >= 0 else sys.maxsize
    last = time.monotonic()
    while left > 0:
        found = consumer.poll(POLL_MS if timeout_ms < 0 else min(POLL_MS, timeout_ms), min(left, POLL_RECORDS))
        for records in found.values():
            left -= len(records)
            yield records
        if found:
            last = time.monotonic()
        elif 0 <= timeout_ms <= (time.monotonic() - last) * 1000:
            return
        else:
            sys.stdout.flush()


class RecordPrinter:
    """Writes records to standard output and counts them."""

    def __init__(self, show: Format, *, skip: bool) -> None:
        self.count = 0
        self.failed = False
        self._show = show
        self._skip = skip

    def print(self, records: Sequence[Any]) -> None:
        """Format and write; a record that cannot be formatted ends the command, or is skipped."""
        try:
            text = self._show(records)
        except _UNPRINTABLE:
            text = self._one_by_one(records)
        else:
            self.count += len(records)
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()

    def _one_by_one(self, records: Sequence[Any]) -> bytes:
        texts = []
        for record in records:
            self.count += 1
            try:
                texts.append(self._show([record]))
            except _UNPRINTABLE as error:
                place = f"{record.topic}-{record.partition} at offset {record.offset}"
                if not self._skip:
                    sys.stdout.buffer.write(b"".join(texts))
                    raise OdradekError(f"cannot print the message of {place}: {error}") from None
                click.echo(f"ERROR skipped the message of {place}: {error}", err=True)
        return b"".join(texts)
