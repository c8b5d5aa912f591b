"""The groups' lag as their operators see it: committed offsets against the ends of the log.

One greenlet of the master, or of the only process, queries the broker every second. A client's own figure would not do:
it uses the end offset from its last fetch, so it shows nothing while the broker answers no fetch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from odradek.loadtest.swarm import metrics
from odradek.loadtest.swarm.connection import librdkafka
from odradek.loadtest.swarm.options import EVENTS, MIXED, group_name

EVERY_SECONDS = 1
ANSWER_SECONDS = 5


def watch(environment: Any) -> None:
    """Record every group's lag once a second while users run; never returns."""
    pool, client = gevent.get_hub().threadpool, None
    while True:
        gevent.sleep(EVERY_SECONDS)
        if environment.runner.user_count:
            client = client or AdminClient({**librdkafka(environment.host), "log_level": 0})
            for records in pool.apply(_look, (client, environment.parsed_options)):
                metrics.behind(environment, records)


def _look(client: AdminClient, options: Any) -> list[int]:
    """On a thread of the pool, because it waits for responses; on an error the next call retries."""
    groups = [MIXED, *map(group_name, range(options.groups))]
    try:
        return list(_lags(client, groups, options.partitions))
    except KafkaException:
        return []


def _lags(client: AdminClient, groups: list[str], partitions: int) -> Iterator[int]:
    latest = {TopicPartition(EVENTS, number): OffsetSpec.latest() for number in range(partitions)}
    asked = client.list_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_SECONDS)
    ends = {place.partition: answer.result().offset for place, answer in asked.items()}
    for group in groups:
        (answer,) = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=ANSWER_SECONDS
        ).values()
        done = {place.partition: place.offset for place in answer.result().topic_partitions}
        if done:  # otherwise the group has no members yet
            yield sum(max(0, end - max(0, done.get(number, 0))) for number, end in ends.items())
