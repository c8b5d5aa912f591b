"""Implements `odradek reassign-partitions`, except `--verify`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click
from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest

from odradek.broker.commands._shared.client import Cluster, Partition, check, explain
from odradek.broker.commands._shared.partitions import (
    by_topic,
    from_file,
    ids,
    is_int32,
    names,
    plural,
    read_json,
    repeated,
)
from odradek.broker.commands.reassign_partitions import throttles
from odradek.broker.commands.reassign_partitions.under_reassignment import Reassignment
from odradek.broker.errors import OdradekError
from odradek.cluster.decisions.assignment import assign
from odradek.cluster.rules.errors import ApiError

Replicas = dict[Partition, list[int]]
_ANY = "any"  # log directory


def targets(path: str) -> list[tuple[Partition, list[int]]]:
    """The partitions of a `--reassignment-json-file`, with their target replicas. Raises OdradekError."""
    found = []
    for topic, index, row in from_file(path):
        replicas = row.get("replicas")
        if not isinstance(replicas, list) or not all(map(is_int32, replicas)):
            raise OdradekError(f'{path}: {topic}-{index} needs "replicas", a list of broker ids')
        _check_log_dirs(f"{path}: {topic}-{index}", row.get("log_dirs", [_ANY] * len(replicas)), replicas)
        found.append(((topic, index), replicas))
    return found


def _check_log_dirs(place: str, folders: Any, replicas: list[int]) -> None:
    """Raises OdradekError unless there is one for each replica, and each is `any`."""
    if not isinstance(folders, list) or len(folders) != len(replicas):
        raise OdradekError(f'{place}: "log_dirs" must be a list with an entry for each replica, or be left out')
    if any(folder != _ANY for folder in folders):
        raise OdradekError(f'{place}: moving to a log directory is not supported; log_dirs must be "{_ANY}"')


def moving(cluster: Cluster, partitions: Iterable[Partition] | None = None) -> dict[Partition, Reassignment]:
    """The reassignments under way, of `partitions` or of all."""
    make = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = None
    if partitions is not None:
        topics = [make(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions).items()]
    request = ListPartitionReassignmentsRequest(timeout_ms=cluster.timeout_ms, topics=topics)
    response = cluster.send_to_controller(request, lambda r: [r.error_code])
    check(response.error_code, response.error_message)
    return {
        (topic.name, part.partition_index): Reassignment(
            list(part.replicas), list(part.adding_replicas), list(part.removing_replicas)
        )
        for topic in response.topics
        for part in topic.partitions
    }


def replicas(cluster: Cluster, topics: Collection[str]) -> Replicas:
    """The replicas of the partitions of `topics`, without topics that do not exist."""
    return {
        (topic.name, part.partition_index): list(part.replica_nodes)
        for topic in cluster.metadata(sorted(topics)).topics
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    }


def live(cluster: Cluster) -> dict[int, str | None]:
    """The rack of each live broker."""
    return {broker.node_id: broker.rack for broker in cluster.metadata([]).brokers}


# -- --list


def show(cluster: Cluster) -> None:
    """Print the reassignments under way."""
    found = moving(cluster)
    if not found:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for (topic, index), move in sorted(found.items()):
        parts = [f"{topic}-{index}: replicas: {ids(move.replicas)}."]
        parts += [f"adding: {ids(move.adding)}."] if move.adding else []
        parts += [f"removing: {ids(move.removing)}."] if move.removing else []
        click.echo(" ".join(parts))


# -- --generate


def generate(cluster: Cluster, brokers: Sequence[int], options: Mapping[str, Any]) -> None:
    """Print the topics' current replicas, and an even assignment of them to `brokers`."""
    topics = _topics(options["topics_to_move_json_file"])
    current = replicas(cluster, topics)
    if missing := sorted(set(topics) - {topic for topic, _ in current}):
        raise OdradekError(f"Topic {missing[0]} not found.")
    racks = {broker: rack for broker, rack in live(cluster).items() if broker in brokers}
    proposed = _proposed(current, dict.fromkeys(racks) if options["disable_rack_aware"] else racks)
    click.echo(f"Current partition replica assignment\n{_document(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{_document(proposed)}")


def _topics(path: str) -> list[str]:
    rows = read_json(path, "topics")
    found = [row["topic"] for row in rows if isinstance(row.get("topic"), str)]
    if len(found) < len(rows):
        raise OdradekError(f'{path}: each topic needs "topic", a string')
    if twice := repeated(found):
        raise OdradekError(f"List of topics to reassign contains duplicate entries: {','.join(twice)}")
    return found


def _proposed(current: Replicas, racks: Mapping[int, str | None]) -> Replicas:
    proposed: Replicas = {}
    for topic, indexes in by_topic(current).items():
        try:
            assigned = assign(racks, len(indexes), len(current[topic, indexes[0]]))
        except ApiError as error:
            raise OdradekError(str(error)) from None
        proposed |= {(topic, index): brokers for index, brokers in assigned.items()}
    return proposed


def _document(assignment: Replicas) -> str:
    """An assignment in the format of `--reassignment-json-file`."""
    rows = [
        {"topic": topic, "partition": index, "replicas": brokers, "log_dirs": [_ANY] * len(brokers)}
        for (topic, index), brokers in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


# -- --execute and --cancel


def execute(cluster: Cluster, options: Mapping[str, Any]) -> None:
    """Print the current assignment for a rollback, then start the moves. Raises OdradekError when one fails."""
    proposed = _checked(targets(options["reassignment_json_file"]))
    under_way = moving(cluster)
    if under_way and not options["additional"]:
        raise OdradekError(
            "reassignments are already in progress (see --list): --additional starts this one too, or changes the "
            "throttle if it is the same"
        )
    current = _current(cluster, proposed)
    click.echo(f"Current partition replica assignment\n\n{_document(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if options["throttle"] is not None:
        throttles.engage(cluster, throttles.moves(under_way, proposed, current), options["throttle"])
    _begin(cluster, proposed)


def _begin(cluster: Cluster, proposed: Replicas) -> None:
    failed = _alter(cluster, proposed)
    if failed:
        raise OdradekError("Error reassigning partition(s):\n" + _failures(failed))
    click.echo(f"Successfully started partition reassignment{plural(proposed)} for {names(proposed)}")


def _checked(reassignments: list[tuple[Partition, list[int]]]) -> Replicas:
    if not reassignments:
        raise OdradekError("Partition reassignment list cannot be empty")
    if not all(brokers for _, brokers in reassignments):
        raise OdradekError("Partition replica list cannot be empty")
    if twice := repeated([one for one, _ in reassignments]):
        raise OdradekError(f"Partition reassignment contains duplicate topic partitions: {names(twice)}")
    twins = [f"{topic}-{index}" for (topic, index), brokers in reassignments if repeated(brokers)]
    if twins:
        raise OdradekError(f"Partition replica lists may not contain duplicate entries: {', '.join(twins)}")
    return dict(reassignments)


def _current(cluster: Cluster, proposed: Replicas) -> Replicas:
    """The partitions' current replicas. Raises OdradekError when a partition or a target broker does not exist."""
    unknown = {broker for brokers in proposed.values() for broker in brokers} - live(cluster).keys()
    if unknown:
        raise OdradekError(f"Unknown broker id {min(unknown)}")
    there = replicas(cluster, {topic for topic, _ in proposed})
    if missing := proposed.keys() - there.keys():
        raise OdradekError(f"Unable to find partition: {names(missing, ', ')}")
    return {one: there[one] for one in proposed}


def cancel(cluster: Cluster, options: Mapping[str, Any]) -> None:
    """Cancel the moves that are under way. Raises OdradekError when one was not cancelled."""
    reassignments = targets(options["reassignment_json_file"])
    active = moving(cluster, [one for one, _ in reassignments]) if reassignments else {}
    if not active:
        click.echo("None of the specified partition reassignments are active.")
    elif failed := _alter(cluster, dict.fromkeys(active)):
        raise OdradekError(f"Error cancelling partition reassignment{plural(failed)} for:\n" + _failures(failed))
    else:
        click.echo(f"Successfully cancelled partition reassignment{plural(active)} for: {names(active)}")
    click.echo("None of the specified partition moves are active.", nl=False)  # as Kafka: for moves between directories
    if not options["preserve_throttles"]:
        throttles.clear(cluster, reassignments, live(cluster))


def _alter(cluster: Cluster, reassignments: Mapping[Partition, list[int] | None]) -> dict[Partition, str]:
    """Request new replicas of partitions (None cancels a move); returns the errors by partition."""
    make = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        make(
            name=topic,
            partitions=[
                make.ReassignablePartition(partition_index=index, replicas=reassignments[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(reassignments).items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.timeout_ms, allow_replication_factor_change=True, topics=topics
    )
    response = cluster.send_to_controller(request, lambda r: [r.error_code])
    check(response.error_code, response.error_message)
    return {
        (topic.name, part.partition_index): part.error_message or explain(part.error_code)
        for topic in response.responses
        for part in topic.partitions
        if part.error_code
    }


def _failures(failed: Mapping[Partition, str]) -> str:
    return "\n".join(f"{topic}-{index}: {why}" for (topic, index), why in sorted(failed.items()))
