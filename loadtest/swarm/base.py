"""Code that all users share: a sender with acknowledgements in the ledger, a reader that detects gaps."""

from __future__ import annotations

from typing import Any

import gevent
from confluent_kafka import Message
from locust import User

from odradek.loadtest.swarm import metrics, record
from odradek.loadtest.swarm.clients import Reader, Sender
from odradek.loadtest.swarm.ledger import Ledger

KEYS = 4  # of each user
CONNECT_SECONDS = 1

ledger = Ledger()
names = record.Names()


class KafkaUser(User):
    """A user that may send and read; `host` is the broker's `host:port`."""

    abstract = True
    idempotent = True
    sender_config: dict[str, Any] = {}

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.bootstrap = environment.host
        self.options = environment.parsed_options
        self.number = names.next()
        self.label = f"ack, {type(self).__name__}"
        self.sent = 0
        self.sender: Sender | None = None
        self.reader: Reader | None = None
        self.group_id = ""

    def on_stop(self) -> None:
        """Leave nothing open: a record neither acknowledged nor refused by now is a failure."""
        if self.reader:
            self.reader.close()
            ledger.read(self.group_id, self.reader.runs.ended)
        if self.sender and (left := self.sender.close()):
            self.failed(f"{left} records neither acknowledged nor failed")
        ledger.flush()

    # -- sending

    def open_sender(self) -> Sender:
        """Create the user's producer, and let it connect: librdkafka requests a producer id twice a second."""
        self.sender = Sender(self.bootstrap, self.idempotent, self._delivered, **self.sender_config)
        gevent.sleep(CONNECT_SECONDS)
        return self.sender

    def send(self, topic: str) -> None:
        """Send the user's next record; its acknowledgement is recorded when it arrives."""
        assert self.sender is not None
        key, value = self.next_record()
        self.sender.send(topic, key, value)

    def next_record(self) -> tuple[bytes, bytes]:
        """One of the user's keys and the next value."""
        kind = record.IDEMPOTENT if self.idempotent else record.PLAIN
        value = record.make(kind, self.number, self.sent, self.options.value_size)
        self.sent += 1
        return b"%x-%d" % (self.number, self.sent % KEYS), value

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed(str(error))
        else:
            latency = message.latency() or 0
            self.stored(message.topic(), message.partition(), message.offset(), message.value(), latency)

    def stored(self, topic: str, partition: int, offset: int, value: bytes, latency: float) -> None:
        """Record an acknowledgement that arrived after `latency` seconds."""
        ledger.acked(topic, partition, offset, value)
        metrics.acked(self.environment, self.label, latency, len(value))

    def failed(self, what: str) -> None:
        """Record a refused record, which fails the run."""
        metrics.failed(self.environment, metrics.PRODUCE, self.label, RuntimeError(what))

    # -- reading

    def open_reader(self, group: str, topic: str) -> Reader:
        """Join a group."""
        self.group_id = group
        self.reader = Reader(self.bootstrap, group, topic)
        return self.reader

    def read(self) -> list[Message]:
        """The next records, checked to follow the previous ones, with their latency recorded."""
        assert self.reader is not None
        messages = [message for message in self.reader.read() if self._sound(message)]
        for message in messages:
            stamp = record.parse(message.value())
            if stamp:
                metrics.delivered(self.environment, stamp.sent_ns, len(message.value() or b""))
        self.reader.done()
        return messages

    def _sound(self, message: Any) -> bool:
        assert self.reader is not None
        topic, partition, fault = message.topic(), message.partition(), message.error()
        if fault is None and (jump := self.reader.runs.note(topic, partition, message.offset())):
            fault = f"the reader jumped by {jump:+d} offsets in {topic}-{partition}"
        if fault is not None:
            metrics.failed(self.environment, metrics.CONSUME, "read", RuntimeError(str(fault)))
        return message.error() is None
