"""Implements `odradek leader-election`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from kafka import errors as kafka_errors
from kafka.protocol.admin import ElectLeadersRequest

from odradek.broker.commands._shared.client import Cluster, Partition, check
from odradek.broker.commands._shared.java_errors import java_error
from odradek.broker.commands._shared.partitions import by_topic, from_file, names, repeated
from odradek.broker.errors import OdradekError

_TYPES = {"PREFERRED": 0, "UNCLEAN": 1}
_NOT_NEEDED = kafka_errors.ElectionNotNeededError.errno


def chosen(options: Mapping[str, Any]) -> list[Partition] | None:
    """The partitions that the options name, None for all. Raises OdradekError."""
    if options["all_topic_partitions"]:
        return None
    if options["topic"]:
        return [(options["topic"], options["partition"])]
    found = [(topic, index) for topic, index, _ in from_file(options["path_to_json_file"])]
    if twice := repeated(found):
        raise OdradekError(f"Replica election data contains duplicate partitions: {names(twice)}")
    return found


def elect(cluster: Cluster, kind: str, partitions: list[Partition] | None) -> None:
    """Request elections of `kind` and print each result. Raises OdradekError when a leader could not be elected."""
    results = _ask(cluster, kind, partitions)
    codes = {one: code for one, (code, _) in results.items()}
    if elected := [one for one, code in codes.items() if code == 0]:
        click.echo(f"Successfully completed leader election ({kind}) for partitions {names(elected, ', ')}")
    if already := [one for one, code in codes.items() if code == _NOT_NEEDED]:
        click.echo(f"Valid replica already elected for partitions {names(already, ', ')}")
    failed = [one for one, code in sorted(codes.items()) if code not in (0, _NOT_NEEDED)]
    for topic, index in failed:
        why = java_error(*results[topic, index])
        click.echo(f"Error completing leader election ({kind}) for partition: {topic}-{index}: {why}")
    if failed:
        raise OdradekError(f"{len(failed)} replica(s) could not be elected")


def _ask(cluster: Cluster, kind: str, partitions: list[Partition] | None) -> dict[Partition, tuple[int, str | None]]:
    request = ElectLeadersRequest(
        election_type=_TYPES[kind],
        topic_partitions=None if partitions is None else _topics(partitions),
        timeout_ms=cluster.timeout_ms,
        min_version=_TYPES[kind],  # version 0 supports only one kind
    )
    response = cluster.send_to_controller(request, lambda r: [getattr(r, "error_code", None) or 0])
    check(getattr(response, "error_code", None) or 0)
    return {
        (topic.topic, part.partition_id): (part.error_code, part.error_message)
        for topic in response.replica_election_results
        for part in topic.partition_result
    }


def _topics(partitions: Iterable[Partition]) -> list[Any]:
    make = ElectLeadersRequest.TopicPartitions
    return [make(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()]
