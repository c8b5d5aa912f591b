"""Send records with librdkafka: all of them, or an error that says where and why.

Delivery runs in the background; only failures are reported to Python, because a callback for each record costs more
than sending it. When the queue is full, `send` waits, as long as `delivery.timeout.ms` keeps records in it.

After its task a producer waits in the process for the next one, as those of Spark's sink do: an idempotent producer
needs half a second to start (librdkafka requests its id, finds no connection yet, and retries 500 ms later).
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
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the brokers' transaction.max.timeout.ms is lower",
    KafkaError._FENCED: "another attempt of this task has started, or the broker has aborted this transaction",
}
_log = logging.getLogger(__name__)
_idle: dict[frozenset[tuple[str, str]], Sender] = {}  # by settings, the longest idle first


@contextmanager
def sender(settings: Mapping[str, str]) -> Iterator[Sender]:
    """A normal exit means that all is delivered; on an exception queued records are dropped.

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
    """A producer, created at first use. After any error it is unusable."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._failure: str | None = None  # of the first record that failed
        self._fatal = False  # librdkafka has given up
        self._trouble = ""  # a connection's last error

    def send(self, records: Iterable[Record]) -> None:
        """Queue `records`; PipelineError when one cannot be queued, or an earlier one failed."""
        for record in records:
            if not self._queued(*record):
                self._wait(record)
        self._check(0)

    def finish(self) -> None:
        """Wait until all is delivered; PipelineError when something failed."""
        if "_producer" in self.__dict__:
            while self._left():
                pass
            self._check(0)

    def drop(self) -> None:
        """Drop undelivered records, except those in flight."""
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
        """Wait until the queue has room; a record that an empty queue refuses never fits."""
        while True:
            self._check(FULL_SECONDS)
            empty = not len(self._producer)
            if self._queued(*record):
                return
            if empty:
                raise PipelineError(f"{_place(record[0], record[3])}: a record is larger than kafka.buffer.memory")

    def _left(self) -> int:
        """The number of undecided records after a short flush, which ends lingering."""
        try:
            return self._producer.flush(FULL_SECONDS)
        except KafkaException as fatal:
            self._fail(fatal)
        except SystemError:  # sometimes raised by confluent_kafka; the failed records have the reason
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
    """The error's name, its message, and a hint that librdkafka does not give."""
    hint = f" ({HINTS[error.code()]})" if error.code() in HINTS else ""
    return f"{error.name()}: {error.str()}{hint}"


def _place(topic: str | None, partition: int | None) -> str:
    """A record that fails early has no partition yet."""
    return str(topic) if partition is None or partition < 0 else f"{topic}-{partition}"
