"""Kafka clients that are safe under gevent: librdkafka's, none of whose calls may block the hub.

Locust runs all users of a process as greenlets on one thread, so a call that waits in C stops every user. librdkafka
does its network work on its own threads, which gevent neither sees nor patches, and puts results in a queue. So:

- No call here ever has a timeout. One greenlet, the pump, polls the queues of all clients of the process every two
  milliseconds (`poll(0)`, `consume(…, 0)`), and gevent's own sleeps and queues do the waiting.
- Calls that block, creating a client (its threads must start) and closing it, go to a pool of threads.
- No Python code runs on other threads, so nothing contends for the interpreter's lock. (A thread for each client that
  waits in `poll` was tried: with 100 users, waiting for that lock doubled the measured latency.)

Latencies are taken when the pump sees a result, so they include up to two milliseconds, and more when locust itself is
short of CPU: it warns of that. Clients are created after locust has forked its workers, because librdkafka's threads do
not survive a fork.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import gevent
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from gevent.queue import Empty, Queue
from gevent.threadpool import ThreadPool

from odradek.loadtest.swarm.connection import librdkafka
from odradek.loadtest.swarm.pump import Pump
from odradek.loadtest.swarm.runs import Runs

FLUSH_SECONDS = 30
PAUSE_SECONDS = 0.01
WAIT_SECONDS = 0.5
BATCH = 500
BATCHES = 4
THREADS = 100
Delivered = Callable[[Any, Message], None]

pump = Pump()


def _apart(call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a blocking call while other greenlets run."""
    return _threads().apply(call, arguments)


@functools.cache
def _threads() -> ThreadPool:
    """Many, because all users of a process stop at once; gevent's own pool has ten."""
    return ThreadPool(THREADS)


class Sender:
    """A producer. The pump calls `delivered(error, message)` for each record."""

    def __init__(self, bootstrap: str, idempotent: bool, delivered: Delivered, **config: Any) -> None:
        self._delivered = delivered
        self._producer = _apart(
            Producer,
            {
                **librdkafka(bootstrap),
                "enable.idempotence": idempotent,
                "acks": "all" if idempotent else 1,
                "linger.ms": 1,
                "message.timeout.ms": FLUSH_SECONDS * 1000,
                "log_level": 0,  # errors show as failures in locust's table
                **config,
            },
        )
        pump.add(self._serve)

    def _serve(self) -> None:
        self._producer.poll(0)

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Queue one record; while librdkafka's queue is full it waits without blocking others."""
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                gevent.sleep(PAUSE_SECONDS)

    def close(self) -> int:
        """Wait until every record is acknowledged or refused; returns how many are neither."""
        until = time.monotonic() + FLUSH_SECONDS + 5
        while (left := len(self._producer)) and time.monotonic() < until:
            gevent.sleep(PAUSE_SECONDS)
        pump.remove(self._serve)
        _apart(self._producer.close)
        return left


class Reader:
    """A member of a consumer group. The user records in `runs` what it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._batches: Queue[list[Message]] = Queue()
        self.runs = Runs()
        self._consumer = _apart(
            Consumer,
            {
                **librdkafka(bootstrap),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "enable.auto.offset.store": False,  # commits include only recorded reads, see `done`
                "partition.assignment.strategy": "cooperative-sticky",  # a joining user does not stop the others
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 500,
                "log_level": 0,
            },
        )
        self._consumer.subscribe([topic], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved)
        pump.add(self._serve)

    def _serve(self) -> None:
        """For the pump; with a slow user records stay in librdkafka."""
        if self._batches.qsize() < BATCHES and (messages := self._consumer.consume(BATCH, 0)):
            self._batches.put(messages)

    def _moved(self, _consumer: Consumer, partitions: list[Any]) -> None:
        """Other members may have read on meanwhile: the next record of these partitions begins a run."""
        for one in partitions:
            self.runs.end(one.topic, one.partition)

    def read(self) -> list[Message]:
        """Available records at once, else after a short wait."""
        try:
            messages: list[Message] = self._batches.get(timeout=WAIT_SECONDS)
            return messages
        except Empty:
            return []

    def done(self) -> None:
        """Allow the commit of all recorded reads."""
        places = [TopicPartition(run.topic, run.partition, run.last + 1) for run in self.runs.now()]
        with contextlib.suppress(KafkaException):  # a partition that was just revoked
            self._consumer.store_offsets(offsets=places)

    def close(self) -> None:
        """Commit and leave the group."""
        pump.remove(self._serve)
        _apart(self._consumer.close)
        self.runs.end_all()
