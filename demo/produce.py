"""Create the demo's topics, and fill the first two."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.demo.data import DemoError
from odradek.demo.events import Event
from odradek.pipeline.auditing import Audit

SECONDS = 60
DAY_MS = 86_400_000
KEEP = {"retention.ms": "-1"}  # by its timestamps all data is years old
COMPACT = {"cleanup.policy": "compact"}


def create(bootstrap: str, topics: dict[str, dict[str, str]], partitions: int) -> None:
    """Create `topics` (name → configuration). Raises KafkaException where one exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, partitions, 1, config=config) for name, config in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS)


class Sender:
    """A producer that reports on the topic `audit`, when closed, the acknowledged events of each day."""

    def __init__(self, bootstrap: str, audit: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
        self._audit = Audit(lambda key, value: self._producer.produce(audit, value, key), "demo", DAY_MS)
        self._failed: list[str] = []

    def send(self, topic: str, events: Iterable[Event]) -> int:
        """Send all and wait for their acknowledgements; returns their number. Raises DemoError for a failed one."""
        count = 0
        for event in events:
            self._put(topic, event)
            count += 1
        self._flush()
        return count

    def close(self) -> None:
        """Raises DemoError where the audit is not acknowledged."""
        self._audit.close()
        self._flush()
        self._producer.close()

    def _put(self, topic: str, event: Event) -> None:
        while True:
            try:
                self._producer.produce(topic, event.value, event.key, timestamp=event.time, on_delivery=self._told)
            except BufferError:  # the queue is full until some are acknowledged
                self._producer.poll(1)
            else:
                self._producer.poll(0)
                return

    def _told(self, error: KafkaError | None, message: Message) -> None:
        self._audit.on_delivery(error, message)
        if error:
            self._failed.append(str(error))

    def _flush(self) -> None:
        left = self._producer.flush(SECONDS)
        if left or self._failed:
            raise DemoError(f"{left + len(self._failed):,} events were not acknowledged {self._failed[:1]}")
