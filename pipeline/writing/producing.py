"""Sending records with librdkafka: all or an error that says where and why.

Delivery is awaited in the background; only failures are reported to Python, for a call a record costs more than
sending it. A queue that is full is waited for, as long as `delivery.timeout.ms` lets records stand in it.

A producer that has done its task waits in the process for the next one, as those of Spark's sink do: an idempotent one
needs half a second to begin (librdkafka asks for its id, finds no connection yet, and asks again 500 ms later).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.writing.outgoing import Header, Record

Bytes = bytes | None
Headers = list[Header] | None

FULL_SECONDS = 0.1
IDLE = 2
HINTS = {
    KafkaError.INVALID_TIMESTAMP: "the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the brokers' transaction.max.timeout.ms is less",
    KafkaError._FENCED: "another attempt of this task has begun, or the broker has given this one up",
}
_log = logging.getLogger(__name__)
_idle: dict[frozenset[tuple[str, str]], Sender] = {}  # by settings, the longest idle first


@contextmanager
def sender(settings: Mapping[str, str]) -> Iterator[Sender]:
    """Left in order all is delivered; left by an exception what is still queued is dropped.

    It connects with the first records. For one thread.
    """
    key = frozenset(settings.items())
    one = _idle.pop(key, None) or Sender(settings)
    try:
        yield one
    except BaseException:
        one.drop()
        raise
    one.finish()
    _idle[key] = one
    for oldest in list(_idle)[:-IDLE]:
        del _idle[oldest]


class Sender:
    """A producer, made when it is first needed. After any error it is of no more use."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._failure: str | None = None  # of the first record that was not delivered
        self._fatal = False  # librdkafka has given up
        self._trouble = ""  # what a connection said last

    def send(self, records: Iterable[Record]) -> None:
        """Queue `records`; PipelineError when one cannot be, or an earlier one was not delivered."""
        for record in records:
            if not self._queued(*record):
                self._wait(record)
        self._check(0)

    def finish(self) -> None:
        """Wait until all is delivered; PipelineError when something was not."""
        if "_producer" in self.__dict__:
            while self._left():
                pass
            self._check(0)

    def drop(self) -> None:
        """Forget what is not delivered yet, but for what is under way."""
        if "_producer" in self.__dict__:
            self._producer.purge()
            while self._left():
                pass

    @cached_property
    def _producer(self) -> Producer:
        callbacks: dict[str, Any] = {"on_delivery": self._delivered, "error_cb": self._troubled}
        return Producer({**self._settings, **callbacks, "delivery.report.only.error": True}, logger=_log)

    def _queued(self, topic: str, value: Bytes, key: Bytes, partition: int, headers: Headers, timestamp: int) -> bool:
        try:
            self._producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
        except BufferError:
            return False
        except KafkaException as error:
            raise PipelineError(f"{_place(topic, partition)}: {reason(error.args[0])}") from None
        return True

    def _wait(self, record: Record) -> None:
        """Until the queue has room for it; what an empty queue refuses never gets any."""
        while True:
            self._check(FULL_SECONDS)
            empty = not len(self._producer)
            if self._queued(*record):
                return
            if empty:
                raise PipelineError(f"{_place(record[0], record[3])}: a record is larger than kafka.buffer.memory")

    def _left(self) -> int:
        """How many records are not decided yet after a moment, in which none lingers."""
        try:
            return self._producer.flush(FULL_SECONDS)
        except KafkaException as fatal:
            self._fail(fatal)
        except SystemError:  # as confluent_kafka tells it sometimes; records that fail with it will say why
            pass
        return len(self._producer)

    def _check(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as fatal:
            self._fail(fatal)
        if self._failure:
            raise PipelineError(self._failure)

    def _fail(self, fatal: KafkaException) -> None:
        self._fatal, self._failure = True, self._failure or reason(fatal.args[0])

    def _delivered(self, error: KafkaError, message: Message) -> None:
        trouble = f" ({self._trouble})" if self._trouble else ""
        place = _place(message.topic(), message.partition())
        self._failure = self._failure or f"{place}: {reason(error)}{trouble}"

    def _troubled(self, error: KafkaError) -> None:
        self._trouble = reason(error)


def reason(error: KafkaError) -> str:
    """Its name, what it says, and what librdkafka does not know of it."""
    hint = f" ({HINTS[error.code()]})" if error.code() in HINTS else ""
    return f"{error.name()}: {error.str()}{hint}"


def _place(topic: str | None, partition: int | None) -> str:
    """A record that fails early has no partition yet."""
    return str(topic) if partition is None or partition < 0 else f"{topic}-{partition}"
