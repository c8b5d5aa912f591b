"""The topics of the demo, and the producer that fills the first two."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from odradek.demo.data import DemoError
from odradek.demo.events import Event

Told = Callable[[KafkaError | None, Message], None]
SECONDS = 60
KEEP = {"retention.ms": "-1"}  # by its timestamps all of it is years old
COMPACT = {"cleanup.policy": "compact"}


def create(bootstrap: str, topics: dict[str, dict[str, str]], partitions: int) -> None:
    """Create `topics` (name → configuration). Raises KafkaException where one is there already."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, partitions, 1, config=config) for name, config in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS)


def send(bootstrap: str, topic: str, events: Iterable[Event]) -> int:
    """Send all, wait until each is acknowledged; how many. Raises DemoError for one that is not."""
    failed: list[str] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    count = 0
    for event in events:
        _put(producer, topic, event, told)
        count += 1
    if producer.flush(SECONDS) or failed:
        raise DemoError(f"not all of {count:,} events for {topic} were acknowledged; {failed[:1]}")
    return count


def _put(producer: Producer, topic: str, event: Event, told: Told) -> None:
    while True:
        try:
            producer.produce(topic, event.value, event.key, timestamp=event.time, on_delivery=told)
        except BufferError:  # the queue is full until some are acknowledged
            producer.poll(1)
        else:
            producer.poll(0)
            return
