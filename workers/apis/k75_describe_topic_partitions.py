"""DescribeTopicPartitions (key 75), version 0: topics by name with their partitions, page by page (KIP-966).

Topics come in alphabetical order, at most `response_partition_limit` (and max.request.partition.size.limit) partitions
per page; the cursor names the first partition of the next page: a partition below 0, or of a topic that the request
does not name, gets INVALID_REQUEST. A request without topics asks for all. Each topic is a step (Services.begin).
Eligible leader replicas are not kept here and are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules import topicnames
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.workers.dispatch import topology
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import DESCRIBE, TOPIC
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeTopicPartitionsResponse")
    cursor, requested = request.cursor, [topic.name for topic in request.topics or ()]
    if cursor is not None and not _is_sound(cursor, requested):
        context.reply(response(topics=[_failed(name) for name in requested], next_cursor=None))
        return
    limit = min(request.response_partition_limit, services.config["max.request.partition.size.limit"])
    page = _Page(services.snapshot, context, max(1, limit))
    hidden = []
    for name, first in _from_cursor(requested or list(services.snapshot.topics), cursor):
        if not context.sees(DESCRIBE, TOPIC, name):
            hidden.append(name)
        elif not page.add(name, first, silent=not requested):
            break
        yield
    if requested:
        page.topics += [_hidden(name) for name in hidden if not context.allows(DESCRIBE, TOPIC, name)]
    context.reply(response(topics=page.topics, next_cursor=page.cursor))


def _is_sound(cursor: Any, requested: list[str]) -> bool:
    """Whether `cursor` can be the start of a next page: a client that follows an invalid one would loop forever."""
    return cursor.partition_index >= 0 and (not requested or cursor.topic_name in requested)


def _hidden(name: str) -> Any:
    """A topic that the client may not describe."""
    return _failed(name, errors.TOPIC_AUTHORIZATION_FAILED)


def _failed(name: str, error: int = errors.INVALID_REQUEST) -> Any:
    failed = message_class("DescribeTopicPartitionsResponse").DescribeTopicPartitionsResponseTopic
    return failed(
        error_code=error,
        name=name,
        topic_id=topology.NO_ID,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=topology.NOT_ASKED,
    )


def _from_cursor(names: list[str], cursor: Any) -> Iterator[tuple[str, int]]:
    """(topic, first partition) in order, starting at the cursor."""
    for name in sorted(set(names)):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, cursor.partition_index


class _Page:
    """One answer while it is filled."""

    def __init__(self, snapshot: Snapshot, context: Context, limit: int) -> None:
        self._snapshot = snapshot
        self._listener = context.listener
        self._rights = context.rights
        self._left = limit
        self._response = message_class("DescribeTopicPartitionsResponse")
        self.topics: list[Any] = []
        self.cursor: Any = None

    def add(self, name: str, first: int, silent: bool) -> bool:
        """Add a topic's partitions from `first` on; False when the page is full."""
        if self._left == 0:
            self.cursor = self._response.Cursor(topic_name=name, partition_index=first)
            return False
        topic = self._snapshot.topics.get(name)
        if topic is None:
            if not silent:
                self._add_missing(name)
            return True
        partitions = topic.partitions[first : first + self._left]
        rows = [self._partition(first + i, info) for i, info in enumerate(partitions)]
        described = self._response.DescribeTopicPartitionsResponseTopic
        self.topics.append(
            described(
                error_code=errors.NONE,
                name=name,
                topic_id=UUID(bytes=topic.id),
                is_internal=topic.internal,
                partitions=rows,
                topic_authorized_operations=topology.bits(self._rights.operations(TOPIC, name)),
            )
        )
        self._left -= len(rows)
        if first + len(rows) < len(topic):
            self.cursor = self._response.Cursor(topic_name=name, partition_index=first + len(rows))
            return False
        return True

    def _add_missing(self, name: str) -> None:
        missing = self._response.DescribeTopicPartitionsResponseTopic
        self.topics.append(
            missing(
                error_code=topology.unknown_topic(name),
                name=name,
                topic_id=topology.NO_ID,
                is_internal=name in topicnames.INTERNAL,
                partitions=[],
                topic_authorized_operations=topology.bits(self._rights.operations(TOPIC, name)),
            )
        )

    def _partition(self, index: int, info: Any) -> Any:
        partition = self._response.DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition
        code, leader = topology.leadership(self._snapshot, info, self._listener)
        return partition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=info.replicas,
            isr_nodes=info.isr,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=topology.offline(self._snapshot, info, self._listener),
        )


API = Api(key=75, name="DescribeTopicPartitions", versions=(0, 0), handle=handle)
