"""Check on the driver, before any task runs, that a batch's topic exists.

Tasks would notice as well, but each on its own: librdkafka waits half a minute for a topic to appear, and Spark tries a
task four times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Producer

from odradek.pipeline.errors import PipelineError, UnknownTopic
from odradek.pipeline.writing.producer_settings import SILENT

ANSWER_SECONDS = 30  # as long as Kafka's clients wait for a request (request.timeout.ms)
APPEAR_SECONDS = 5
NOT_YET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)


def expect(settings: Mapping[str, str], topic: str) -> None:
    """Return when the topic exists; this request creates it where brokers do so (auto.create.topics.enable).

    UnknownTopic when it does not appear; PipelineError when no broker answers, or access is denied.
    """
    producer = Producer(dict(settings), logger=SILENT)
    deadline = time.monotonic() + APPEAR_SECONDS
    while error := _error(producer, settings["bootstrap.servers"], topic):
        if error.code() not in NOT_YET:
            raise PipelineError(f"{topic}: {error.name()}: {error.str()}")
        if time.monotonic() > deadline:
            raise UnknownTopic(f"topic {topic} does not exist (or this user may not see it)")
        time.sleep(0.1)


def _error(producer: Producer, servers: str, topic: str) -> KafkaError | None:
    try:
        error: KafkaError | None = producer.list_topics(topic, ANSWER_SECONDS).topics[topic].error
        return error
    except KafkaException as raised:
        raise PipelineError(f"no broker of {servers} responds: {raised.args[0].str()}") from None
