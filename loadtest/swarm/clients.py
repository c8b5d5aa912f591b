"""Kafka clients that are safe under gevent: librdkafka's, none of whose calls may hold up the hub.

Locust runs all users of a process as greenlets on one thread, so a call that waits in C stops every user. librdkafka
does its network work on threads of its own, which gevent neither sees nor patches; left are the calls into it that
wait. Each client makes those on one operating-system thread of its own (a gevent `ThreadPool` of one):

- A producer's thread sits in `poll` and takes down each acknowledgement with its latency as it comes; the greenlet
  counts them when it is next awake, so that a user who sleeps or reads does not make his broker look slow. `produce`
  never waits and stays in the greenlet.
- A consumer's thread waits for records, and the greenlet wakes as soon as there are some. `close` goes through the
  same thread, so it cannot overtake a `poll` that still waits, which would be a crash.

What remains is the interpreter's lock: a thread may wait for it as long as `sys.getswitchinterval`, which the
locustfile therefore lowers. Clients are made after locust has forked its workers, because librdkafka's threads do not
survive a fork.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from gevent.threadpool import ThreadPool
from odradek.loadtest.swarm.runs import Runs

FLUSH_SECONDS = 30
COUNT_SECONDS = 0.2
FULL_SECONDS = 0.01
WAIT_SECONDS = 0.5
BATCH = 500
Delivered = Callable[[Any, Message, float], None]


class Sender:
    """A producer. `delivered(error, message, latency in seconds)` is called for each record, in the user's greenlet."""

    def __init__(self, bootstrap: str, idempotent: bool, delivered: Delivered, **config: Any) -> None:
        self._delivered = delivered
        self._answers: deque[tuple[Any, Message, float]] = deque()
        self._closing = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all" if idempotent else 1,
                "linger.ms": 1,
                "message.timeout.ms": FLUSH_SECONDS * 1000,
                "log_level": 0,  # what goes wrong shows as failures in locust's table
                **config,
            }
        )
        self._thread = ThreadPool(1)
        self._serving = self._thread.spawn(self._serve)

    def _serve(self) -> None:
        while not self._closing:
            self._producer.poll(WAIT_SECONDS)
        self._producer.close()

    def _answered(self, error: Any, message: Message) -> None:
        """On the thread: librdkafka counts the latency up to this call, so it is asked here and not later."""
        self._answers.append((error, message, message.latency() or 0))

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Hand over one record; waits, without holding up others, while librdkafka's queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._answered)
                return
            except BufferError:
                self.idle(FULL_SECONDS)

    def idle(self, seconds: float) -> None:
        """Let other users run for so long, and count what was acknowledged."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._count()
            gevent.sleep(min(left, COUNT_SECONDS))
        self._count()

    def _count(self) -> None:
        while self._answers:
            self._delivered(*self._answers.popleft())

    def close(self) -> int:
        """Wait until every record is acknowledged or refused; returns how many are neither."""
        until = time.monotonic() + FLUSH_SECONDS + 5
        while (left := len(self._producer)) and time.monotonic() < until:
            self.idle(FULL_SECONDS)
        self._closing = True
        self._serving.wait()
        self._thread.kill()
        self._count()
        return left


def take(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Up to `most` records as soon as there is one; `consume` alone would wait for as many as it is asked for."""
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(most - 1, 0)]


class Reader:
    """A member of a consumer group on a thread of its own. `runs` is for the user to note in what it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._thread = ThreadPool(1)
        self.runs = Runs()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,  # what is committed was noted as read before, see `done`
                "partition.assignment.strategy": "cooperative-sticky",  # a joining user does not stop the others
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved)

    def _moved(self, _consumer: Consumer, partitions: list[Any]) -> None:
        """Others may have read on meanwhile: the next record of these partitions begins a run."""
        for one in partitions:
            self.runs.end(one.topic, one.partition)

    def read(self) -> list[Message]:
        """What there is to read, at once when there is something, else after waiting a little."""
        return self._thread.apply(take, (self._consumer, BATCH, WAIT_SECONDS))

    def done(self) -> None:
        """All that was noted may be committed."""
        places = [TopicPartition(run.topic, run.partition, run.last + 1) for run in self.runs.now()]
        with contextlib.suppress(KafkaException):  # a partition that was taken away just now
            self._consumer.store_offsets(offsets=places)

    def lag(self) -> int:
        """How many records of the member's partitions it has not read, by the last answers it got."""
        return self._thread.apply(self._lag)

    def _lag(self) -> int:
        behind = 0
        for place in self._consumer.position(self._consumer.assignment()):
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
            behind += max(0, high - place.offset) if place.offset >= 0 and high >= 0 else 0
        return behind

    def close(self) -> None:
        """Commit and leave the group, after the call that is under way."""
        self._thread.apply(self._consumer.close)
        self._thread.kill()
        self.runs.end_all()
