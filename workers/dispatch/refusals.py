"""The answer to a whole request that its sender may not make, as Kafka's `getErrorResponse` of each request has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol.interbroker import message_class
from odradek.security.acls import acl_requests
from odradek.workers.dispatch.api import Api


def refusal(row: Api, request: Any, error: int) -> Any:
    """The response to `request` with this error: in a field of its own, or in each element that may have one."""
    build = _BUILDERS.get(row.key)
    return build(request, error) if build is not None else message_class(f"{row.name}Response")(error_code=error)


def has_fields(row: Api) -> bool:
    """Whether `refusal` has a builder for this API, since one error code is not all of its response."""
    return row.key in _BUILDERS


def _log_dirs(request: Any, error: int) -> Any:
    return message_class("DescribeLogDirsResponse")(error_code=error, results=[])


def _elections(request: Any, error: int) -> Any:
    response = message_class("ElectLeadersResponse")
    result = response.ReplicaElectionResult
    results = [
        result(
            topic=topic.topic,
            partition_result=[
                result.PartitionResult(partition_id=index, error_code=error, error_message=None)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return response(error_code=error, replica_election_results=results)


def _moves(request: Any, error: int) -> Any:
    response = message_class("AlterPartitionReassignmentsResponse")
    topic_class = response.ReassignableTopicResponse
    part_class = topic_class.ReassignablePartitionResponse
    topics = [
        topic_class(
            name=topic.name,
            partitions=[
                part_class(partition_index=part.partition_index, error_code=error, error_message=None)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response(error_code=error, error_message=None, responses=topics)


def _moves_under_way(request: Any, error: int) -> Any:
    response = message_class("ListPartitionReassignmentsResponse")
    topic_class = response.OngoingTopicReassignment
    part_class = topic_class.OngoingPartitionReassignment
    topics = [
        topic_class(
            name=topic.name,
            partitions=[
                part_class(partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[])
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return response(error_code=error, error_message=None, topics=topics)


def _markers(request: Any, error: int) -> Any:
    response = message_class("WriteTxnMarkersResponse")
    marker_class = response.WritableTxnMarkerResult
    topic_class = marker_class.WritableTxnMarkerTopicResult
    part_class = topic_class.WritableTxnMarkerPartitionResult
    markers = [
        marker_class(
            producer_id=marker.producer_id,
            topics=[
                topic_class(
                    name=topic.name,
                    partitions=[part_class(partition_index=at, error_code=error) for at in topic.partition_indexes],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    return response(markers=markers)


def _quotas(request: Any, error: int) -> Any:
    return message_class("DescribeClientQuotasResponse")(error_code=error, error_message=None, entries=None)


def _altered_quotas(request: Any, error: int) -> Any:
    response = message_class("AlterClientQuotasResponse")
    entry_class = response.EntryData
    entries = [
        entry_class(
            error_code=error,
            error_message=None,
            entity=[
                entry_class.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return response(entries=entries)


def _credentials(request: Any, error: int) -> Any:
    response = message_class("DescribeUserScramCredentialsResponse")
    result = response.DescribeUserScramCredentialsResult
    denied = result(user="", error_code=error, error_message=None, credential_infos=[])
    return response(error_code=error, error_message=None, results=[denied] * len(request.users or ()))


def _altered_credentials(request: Any, error: int) -> Any:
    response = message_class("AlterUserScramCredentialsResponse")
    result = response.AlterUserScramCredentialsResult
    users = sorted({one.name for one in (*request.deletions, *request.upsertions)})
    return response(results=[result(user=user, error_code=error, error_message=None) for user in users])


_BUILDERS: dict[int, Callable[[Any, int], Any]] = {
    27: _markers,
    29: lambda request, error: acl_requests.refuse_describe(error, None),
    30: lambda request, error: acl_requests.refuse_create(request, error, None),
    31: lambda request, error: acl_requests.refuse_delete(request, error, None),
    35: _log_dirs,
    43: _elections,
    45: _moves,
    46: _moves_under_way,
    48: _quotas,
    49: _altered_quotas,
    50: _credentials,
    51: _altered_credentials,
}
