"""Reads all records back, partition by partition, with a client that took no part in the load."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from odradek.loadtest.swarm import compare, ledger
from odradek.loadtest.swarm.connection import librdkafka
from odradek.loadtest.swarm.record import IDEMPOTENT, Stamp, digest, parse

PATIENCE_SECONDS = 30
BATCH = 5000
NOBODY = Stamp(b"?", 0, 0, 0)


class ReadError(Exception):
    """The log cannot be read to its end."""


def verify(bootstrap: str, folder: Path, topics: Iterable[str]) -> compare.Findings:
    """Compare all ledgers in `folder` with all records in `topics`."""
    rows, findings = ledger.acked(folder), compare.Findings()
    consumer = _consumer(bootstrap)
    try:
        for topic in topics:
            mine = rows[rows["topic"] == topic.encode()]
            for number in _partitions(consumer, topic):
                acked = mine[mine["partition"] == number]
                compare.partition(findings, f"{topic}-{number}", acked, read(consumer, topic, number))
    finally:
        consumer.close()
    _groups(findings, ledger.read(folder))
    if findings.acked != len(rows):
        findings.faults.append(f"{len(rows) - findings.acked} rows name a topic or partition that does not exist")
    return findings


def _groups(findings: compare.Findings, runs: np.ndarray) -> None:
    for name, topic, number in np.unique(runs[["group", "topic", "partition"]]):
        mine = (runs["group"] == name) & (runs["topic"] == topic) & (runs["partition"] == number)
        compare.group(findings, name.decode(), f"{topic.decode()}-{number}", runs[mine])


def _consumer(bootstrap: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            **librdkafka(bootstrap),
            "group.id": "odradek-swarm-verify",  # the client requires one; nothing is committed
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # the next partition's first request queues behind a waiting fetch
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def _partitions(consumer: Any, topic: str) -> list[int]:
    """Its partitions; none when it does not exist, which is no fault unless a ledger names it."""
    from confluent_kafka import KafkaError

    found = consumer.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic]
    if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise ReadError(f"{topic}: {found.error}")
    return sorted(found.partitions)


def read(consumer: Any, topic: str, partition: int) -> np.ndarray:
    """All records of a partition, in reading order."""
    from confluent_kafka import TopicPartition

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)
    if low < high:
        consumer.assign([TopicPartition(topic, partition, low)])
    rows: list[tuple[int, int, int, int, bool]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while low < high and (not rows or rows[-1][0] < high - 1):
        messages = _take(consumer)
        rows += map(_row, messages)
        deadline = time.monotonic() + PATIENCE_SECONDS if messages else deadline
        if time.monotonic() > deadline:
            at = rows[-1][0] + 1 if rows else low
            raise ReadError(f"{topic}-{partition} ends at {high}, but no record arrived after {at}")
    return np.array(rows, compare.READ)


def _take(consumer: Any) -> list[Any]:
    """Available records, as soon as there are any; `consume` alone would wait for the full number."""
    first = consumer.poll(1)
    return [] if first is None else [first, *consumer.consume(BATCH, 0)]


def _row(message: Any) -> tuple[int, int, int, int, bool]:
    if message.error() is not None:
        raise ReadError(f"{message.topic()}-{message.partition()}: {message.error()}")
    stamp = parse(message.value()) or NOBODY
    return message.offset(), digest(message.value() or b""), stamp.user, stamp.number, stamp.kind == IDEMPOTENT
