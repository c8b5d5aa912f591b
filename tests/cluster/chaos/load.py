"""Real producers that continue through all faults, and record acknowledgements (readers: readers.py).

An idempotent producer retries until a record is stored; the others send each record once, so that none may
be in the log twice, and an unanswered record may exist or not.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

from ...faults.checker import History, key_of
from .security import Clients

UNKNOWN = -1  # a record acknowledged without an offset, since it was sent twice
_PADDING = b"." * 60
_QUEUED = 2000
_NOT_TAKEN = {"NotEnoughReplicasError"}  # this error precedes the append


class Mode(NamedTuple):
    """How a producer produces."""

    acks: str
    idempotent: bool
    compression: str

    def __str__(self) -> str:
        return f"acks={self.acks}, {'idempotent' if self.idempotent else 'once'}, {self.compression}"


MODES = [
    Mode(acks, idempotent, compression)
    for compression in ("none", "lz4")
    for acks, idempotent in (("all", True), ("all", False), ("1", False))
]


class Gaps:
    """The times without an acknowledgement of a partition while a record was in flight."""

    def __init__(self, partitions: int) -> None:
        self._since = [time.monotonic()] * partitions
        self._longest = 0.0

    def acked(self, partition: int) -> None:
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since[partition])
        self._since[partition] = now

    def begin(self) -> None:
        """Start to measure."""
        self._since = [time.monotonic()] * len(self._since)
        self._longest = 0.0

    @property
    def longest(self) -> float:
        """The longest gap in seconds, including a current one."""
        return max(self._longest, time.monotonic() - min(self._since))


class Producer:
    """A thread that sends numbered records to the partitions of a topic."""

    def __init__(self, topic: str, partitions: int, number: int, mode: Mode, pause: float) -> None:
        self.mode = mode
        self.history = History(number, mode.idempotent, acked={partition: {} for partition in range(partitions)})
        self.gaps = Gaps(partitions)
        self.errors: Counter[str] = Counter()
        self.problems: list[str] = []
        self._topic, self._partitions, self._pause = topic, partitions, pause
        self._dice = random.Random(number)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 180) -> None:
        """Stop sending, and wait until all sent records are decided."""
        self._stop.set()
        self._thread.join(30)
        if not self._flushed(seconds):
            self.problems.append(
                f"producer {self.history.producer}: some records have no delivery report after {seconds:g} s"
            )

    def abandon(self) -> None:
        """Stop without waiting for records in flight."""
        self._stop.set()

    def _flushed(self, seconds: float) -> bool:
        raise NotImplementedError

    def _send(self, partition: int, number: int, value: bytes, key: bytes) -> None:
        raise NotImplementedError

    def _rest(self) -> None:
        time.sleep(self._pause)

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = self._dice.randrange(self._partitions)
            number = self.history.sent.get(partition, 0)
            self.history.sent[partition] = number + 1
            name = self.history.producer
            self._send(partition, number, b"%d %d" % (name, number) + _PADDING, key_of(name, number))
            self._rest()

    def _given_up(self, partition: int, number: int, error: object) -> str:
        return f"producer {self.history.producer} gave up record {number} of partition {partition}: {error}"

    def _acked(self, partition: int, number: int, offset: int) -> None:
        self.history.acked[partition][number] = offset if offset >= 0 else UNKNOWN
        self.gaps.acked(partition)


class ByLibrdkafka(Producer):
    """confluent-kafka, idempotent, with one request at a time.

    With more requests it may duplicate records: when a second request fails because the first did, it begins a new
    producer epoch, in which it also resends records that other partitions may have (confluentinc/librdkafka#4953).
    """

    def __init__(self, clients: Clients, topic: str, partitions: int, number: int, mode: Mode, pause: float) -> None:
        super().__init__(topic, partitions, number, mode, pause)
        self._client = _librdkafka(clients, mode, self._told)

    def _send(self, partition: int, number: int, value: bytes, key: bytes) -> None:
        self._client.produce(self._topic, value, key, partition, self._decided)

    def _rest(self) -> None:
        self._poll(self._pause)
        while len(self._client) > _QUEUED and not self._stop.is_set():
            self._poll(0.1)

    def _poll(self, seconds: float) -> None:
        """Process delivery reports. Records without a report when the client failed stay in doubt.

        Its C code has raised `SystemError: exception <class 'str'> is not a BaseException subclass` here, once.
        """
        try:
            self._client.poll(seconds)
        except SystemError as error:
            self.errors[f"{type(error).__name__}: {error}"] += 1

    def _flushed(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while len(self._client) and time.monotonic() < until:
            self._poll(0.1)
        done = not len(self._client)
        self._client.close()
        return done

    def abandon(self) -> None:
        super().abandon()
        with contextlib.suppress(RuntimeError):  # the client is closed
            self._client.purge()

    def _decided(self, error: Any, message: Any) -> None:
        number, partition = int(message.value().rstrip(b".").split()[1]), message.partition()
        if error is None:
            self._acked(partition, number, message.offset())
        else:
            self.problems.append(self._given_up(partition, number, error))

    def _told(self, error: Any) -> None:
        self.errors[error.name()] += 1
        if error.fatal():
            self.problems.append(f"producer {self.history.producer}: fatal error: {error}")


class ByPython(Producer):
    """kafka-python: idempotent with one request at a time, or without retries and with five.

    With more requests, an idempotent one loses records: when the broker refuses a batch (NOT_ENOUGH_REPLICAS) and must
    refuse the next one as out of order, it retries the first, but not the second.
    (librdkafka cannot send only once: it retries after NOT_LEADER.)
    """

    def __init__(self, clients: Clients, topic: str, partitions: int, number: int, mode: Mode, pause: float) -> None:
        super().__init__(topic, partitions, number, mode, pause)
        self._client = _python(clients, mode)

    def _send(self, partition: int, number: int, value: bytes, key: bytes) -> None:
        from kafka.errors import KafkaError

        try:
            future = self._client.send(self._topic, value, key, partition=partition)
        except KafkaError as error:  # the buffer is full, or the topic is unknown
            self.errors[type(error).__name__] += 1
            self.history.sent[partition] = number  # the record does not count as sent
            return
        future.add_callback(lambda told: self._acked(partition, number, told.offset))
        future.add_errback(lambda error: self._refused(partition, number, error))

    def _refused(self, partition: int, number: int, error: Exception) -> None:
        self.errors[type(error).__name__] += 1
        if self.mode.idempotent:
            self.problems.append(self._given_up(partition, number, repr(error)))
        elif type(error).__name__ in _NOT_TAKEN:
            self.history.refused.setdefault(partition, set()).add(number)

    def _flushed(self, seconds: float) -> bool:
        from kafka.errors import KafkaError

        try:
            self._client.flush(seconds)
        except KafkaError:
            return False
        self._client.close(10)
        return True


def make_producer(clients: Clients, topic: str, partitions: int, number: int, mode: Mode, pause: float) -> Producer:
    """A producer of this mode."""
    kind = ByLibrdkafka if mode.idempotent and mode.compression == "none" else ByPython
    return kind(clients, topic, partitions, number, mode, pause)


def _librdkafka(clients: Clients, mode: Mode, told: Any) -> Any:
    from confluent_kafka import Producer as Client

    return Client(
        {
            **clients.librdkafka,
            "acks": mode.acks,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 1,
            "compression.type": mode.compression,
            "error_cb": told,
            "linger.ms": 5,
            "batch.num.messages": 20,
            "request.timeout.ms": 3000,  # a retry may be sent while the first attempt can still be appended
            "socket.timeout.ms": 6000,
            "message.timeout.ms": 300_000,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
        }
    )


def _python(clients: Clients, mode: Mode) -> Any:
    from kafka import KafkaProducer

    retrying = {"delivery_timeout_ms": 300_000, "request_timeout_ms": 3000, "max_in_flight_requests_per_connection": 1}
    once = {"retries": 0, "delivery_timeout_ms": 15_000, "request_timeout_ms": 5000}
    return KafkaProducer(
        **clients.kafka_python,
        acks=-1 if mode.acks == "all" else int(mode.acks),
        enable_idempotence=mode.idempotent,
        compression_type=None if mode.compression == "none" else mode.compression,
        linger_ms=5,
        max_block_ms=5000,
        metadata_max_age_ms=5000,
        retry_backoff_ms=50,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=500,
        metrics_enabled=False,
        **(retrying if mode.idempotent else once),
    )
