"""The swarm's own options of locust's command line and web page; plain values, which a master can send to workers."""

from __future__ import annotations

from typing import Any

EVENTS = "swarm-events"
RESULTS = "swarm-results"
TOPICS = (EVENTS, RESULTS)
MIXED = "swarm-mixed"
SHAPES = ("steady", "ramp", "spike", "soak")


def add(parser: Any) -> None:
    """Add them to locust's `parser`; see `locust --help`."""
    argument = parser.add_argument
    shapes = "Number of users over the run time (on the web page: pick a shape class)"
    argument("--shape", choices=SHAPES, default=SHAPES[0], include_in_web_ui=False, help=shapes)
    argument("--partitions", type=int, default=16, help="Partitions of each created topic")
    argument("--value-size", type=int, default=200, help="Bytes of a record's value")
    argument("--groups", type=int, default=2, help="Consumer groups; each reads all topics")
    ledgers = "Folder for the ledgers of acknowledged records, one per locust process"
    argument("--ledger", include_in_web_ui=False, help=ledgers)


def group_name(number: int) -> str:
    """A consumer group's name, by its number."""
    return f"swarm-group-{number}"


def create_topics(bootstrap: str, partitions: int) -> None:
    """Create the swarm's topics where they are missing."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    from odradek.loadtest.swarm.connection import librdkafka

    admin = AdminClient({**librdkafka(bootstrap), "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, partitions, 1) for topic in TOPICS]).values():
        try:
            made.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
