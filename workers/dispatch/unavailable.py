"""The answer when the coordinator died with a request: NOT_COORDINATOR, so that the client looks it up again.

Only for APIs in which clients expect this error; other requests' connections are closed, with the same effect.
OffsetFetch gets COORDINATOR_LOAD_IN_PROGRESS, as its successor loads: librdkafka (at least up to 2.16) repeats the
request on this error, but on NOT_COORDINATOR never reads the partitions that it has just been assigned
(https://github.com/confluentinc/librdkafka/issues/5586). Where another broker became the coordinator meanwhile, the
repeated request gets NOT_COORDINATOR, as from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.protocol.wire import MALFORMED
from odradek.workers.dispatch.api import Api

_CODE = errors.NOT_COORDINATOR
_LOADING = errors.COORDINATOR_LOAD_IN_PROGRESS
# JoinGroup, Heartbeat, LeaveGroup, SyncGroup, ListGroups, InitProducerId, AddOffsetsToTxn, EndTxn
_ONE_CODE = (11, 12, 13, 14, 16, 22, 25, 26)


def answer(row: Api, version: int, body: bytes) -> bytes | None:
    """The body of the answer to the request in `body`, None when its connection is to be closed instead."""
    if row.key in _ONE_CODE:
        return row.encode(version, message_class(row.name + "Response")(error_code=_CODE))
    build = _BUILDERS.get(row.key)
    if build is None:
        return None
    try:
        return row.encode(version, build(row.decode(version, memoryview(body)), version))
    except MALFORMED:
        return None


def _offset_commit(request: Any, version: int) -> Any:
    response = message_class("OffsetCommitResponse")
    topic_class = response.OffsetCommitResponseTopic
    part_class = topic_class.OffsetCommitResponsePartition
    topics = []
    for topic in request.topics:
        parts = [part_class(partition_index=part.partition_index, error_code=_CODE) for part in topic.partitions]
        named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
        topics.append(topic_class(partitions=parts, **named))
    return response(topics=topics)


def _offset_fetch(request: Any, version: int) -> Any:
    response = message_class("OffsetFetchResponse")
    if version >= 8:
        group_class = response.OffsetFetchResponseGroup
        groups = [group_class(group_id=one.group_id, topics=[], error_code=_LOADING) for one in request.groups]
        return response(groups=groups)
    topic_class = response.OffsetFetchResponseTopic
    part_class = topic_class.OffsetFetchResponsePartition
    topics = []
    for topic in request.topics or ():  # also with the error of all: see workers.apis.k09_offset_fetch
        parts = [
            part_class(partition_index=index, committed_offset=-1, metadata="", error_code=_LOADING)
            for index in topic.partition_indexes
        ]
        topics.append(topic_class(name=topic.name, partitions=parts))
    return response(topics=topics, error_code=_LOADING)


_BUILDERS: dict[int, Callable[[Any, int], Any]] = {8: _offset_commit, 9: _offset_fetch}
