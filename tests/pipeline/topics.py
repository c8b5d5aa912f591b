"""Records written by librdkafka, and the expected results of reading them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from ..clients.admin import unique
from ..clients.transactions import await_stable

WAIT = 60
HOUR = 3600  # seconds
NOW = int(time.time()) // HOUR * HOUR * 1000  # ms; recent enough for the default retention, the start of an hour


class Sent(NamedTuple):
    """A record as in the log, with its fields in the order of Spark's columns."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int  # ms


def send(broker: Any, topic: str, numbers: Iterable[int], partitions: int = 1, **config: Any) -> list[Sent]:
    """Write records made of `numbers`, in turn to each partition, a second apart; returns the acknowledged records.

    `_` in a name of `config` stands for `.`. Each partition gets its records in one request, so no stream sees a part.
    """
    sent: list[Sent] = []
    producer = _producer(broker, {"linger_ms": WAIT * 1000, **config})  # `flush` ignores linger.ms
    for number in numbers:
        producer.produce(
            topic,
            None if number % 7 == 3 else b"value %d" % number,
            None if number % 5 == 2 else b"key %d" % number,
            number % partitions,
            on_delivery=lambda error, message: sent.append(_sent(error, message)),
            timestamp=NOW + number * 1000,
            headers=[*headers(number)],
        )
    assert not producer.flush(WAIT)
    return sorted(sent, key=lambda one: (one.partition, one.offset))


def headers(number: int) -> list[tuple[str, bytes | None]]:
    """The headers that `send` puts on a record: none, one, a duplicate name, a null value."""
    return [("h", b"%d" % number), ("h", b""), ("none", None)][: number % 4]


def _sent(error: Any, message: Message) -> Sent:
    assert not error, error
    where: Any = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
    return Sent(message.key(), message.value(), *where)


def _producer(broker: Any, config: dict[str, Any]) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": broker.bootstrap, **settings})


@contextmanager
def transaction(broker: Any, name: str, end: str) -> Iterator[Producer]:
    """A producer in a transaction with id `name`, which ends by `end`: `commit`, `abort`, `leave` for neither."""
    producer = _producer(broker, {"transactional_id": name})
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    yield producer
    assert not producer.flush(WAIT)
    if end != "leave":
        {"commit": producer.commit_transaction, "abort": producer.abort_transaction}[end](WAIT)


def undecided(broker: Any, topic: str) -> dict[str, list[str]]:
    """Write committed, aborted, committed and open transactions; returns the values that each isolation level sees."""
    ends = ("commit", "abort", "commit", "leave")
    for at, end in enumerate(ends):
        with transaction(broker, unique("id"), end) as producer:
            for number in range(10):
                producer.produce(topic, f"{at}.{number}")
        if end != "leave":
            await_stable(broker, topic)
    every = [f"{at}.{number}" for at in range(4) for number in range(10)]
    return {
        "read_uncommitted": every,
        "read_committed": [value for value in every if ends[int(value[0])] == "commit"],
    }
