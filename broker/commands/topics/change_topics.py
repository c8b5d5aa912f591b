"""Implements `odradek topics`, except `--describe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from kafka.errors import TopicAlreadyExistsError
from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

from odradek.broker.commands._shared.client import Cluster, check
from odradek.broker.commands._shared.filters import topic_filter
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.errors import OdradekError

Options = Mapping[str, Any]


def matching(cluster: Cluster, pattern: str | None, *, exclude_internal: bool = False) -> list[Any]:
    """The topics of a MetadataResponse whose name matches, sorted by name."""
    allowed = topic_filter(pattern) if pattern else None
    found = [
        topic
        for topic in cluster.metadata().topics
        if (allowed is None or allowed(topic.name)) and not (exclude_internal and topic.is_internal)
    ]
    return sorted(found, key=lambda topic: topic.name)


def must_exist(found: list[Any], options: Options) -> None:
    """Raise OdradekError when --topic matches no topic, unless --if-exists."""
    if options["topic"] and not found and not options["if_exists"]:
        raise OdradekError(f"Topic '{options['topic']}' does not exist")


def warn_of_metrics(name: str) -> None:
    """Print the warning of Kafka's tool for a new topic with such a name."""
    if "." in name or "_" in name:
        click.echo(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both.",
            err=True,
        )


def create(cluster: Cluster, options: Options) -> None:
    """Create one topic."""
    name = options["topic"]
    warn_of_metrics(name)
    request = CreateTopicsRequest(
        topics=[_creatable(name, options)], timeout_ms=cluster.timeout_ms, validate_only=False
    )
    response = cluster.send_to_controller(request, lambda r: [topic.error_code for topic in r.topics])
    result = response.topics[0]
    if result.error_code == TopicAlreadyExistsError.errno and options["if_not_exists"]:
        return
    check(result.error_code, result.error_message)
    click.echo(f"Created topic {name}.")


def _creatable(name: str, options: Options) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    by_hand = options["replica_assignment"]
    return topic(
        name=name,
        num_partitions=-1 if by_hand else options["partitions"] or -1,
        replication_factor=-1 if by_hand else options["replication_factor"] or -1,
        assignments=[
            topic.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(by_hand)
        ],
        configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in options["config"].items()],
    )


def show_names(cluster: Cluster, options: Options) -> None:
    """Print names, one per line."""
    found = matching(cluster, options["topic"], exclude_internal=options["exclude_internal"])
    names = [topic.name for topic in found]
    if options["as_json"]:
        print_json(names)
        return
    for name in names:
        click.echo(name)


def alter(cluster: Cluster, options: Options) -> None:
    """Raise the number of partitions of each matching topic to `--partitions`."""
    found = matching(cluster, options["topic"])
    must_exist(found, options)
    if not found:
        return
    topics = [_grown(topic, options) for topic in found]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=cluster.timeout_ms, validate_only=False)
    response = cluster.send_to_controller(request, lambda r: [result.error_code for result in r.results])
    for result in response.results:
        check(result.error_code, result.error_message)


def _grown(topic: Any, options: Options) -> Any:
    """The request for one topic. `--replica-assignment` lists all partitions, the request only the new ones."""
    make = CreatePartitionsRequest.CreatePartitionsTopic
    new = options["replica_assignment"][len(topic.partitions) :]
    assignments = [make.CreatePartitionsAssignment(broker_ids=brokers) for brokers in new]
    return make(name=topic.name, count=options["partitions"], assignments=assignments or None)


def delete(cluster: Cluster, options: Options) -> None:
    """Delete each matching topic."""
    found = matching(cluster, options["topic"])
    must_exist(found, options)
    if not found:
        return
    names = [topic.name for topic in found]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
        topic_names=names,
        timeout_ms=cluster.timeout_ms,
    )
    response = cluster.send_to_controller(request, lambda r: [result.error_code for result in r.responses])
    for result in response.responses:
        check(result.error_code, getattr(result, "error_message", None))
