"""Implements `odradek log-dirs`."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import click
from kafka.protocol.admin import DescribeLogDirsRequest

from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands._shared.java_errors import java_class
from odradek.broker.commands._shared.partitions import ids
from odradek.broker.errors import OdradekError


def describe(cluster: Cluster, brokers: Collection[int], topics: Collection[str]) -> None:
    """Print the log directories of `brokers`, with the partitions of `topics`; an empty collection means all."""
    there = sorted(broker.node_id for broker in cluster.metadata([]).brokers)
    if unknown := sorted(set(brokers) - set(there)):
        raise OdradekError(
            f"The given brokers do not exist from --broker-list: {ids(unknown)}. Current existent brokers: {ids(there)}"
        )
    queried = sorted(brokers) or there
    click.echo("Querying brokers for log directories information")
    found = [{"broker": broker, "logDirs": _dirs(cluster, broker, topics)} for broker in queried]
    click.echo(f"Received log directory information from brokers {ids(queried)}")
    click.echo(json.dumps({"brokers": found, "version": 1}, separators=(",", ":")))


def _dirs(cluster: Cluster, broker: int, topics: Collection[str]) -> list[dict[str, Any]]:
    """A broker's log directories, with keys in the order of Kafka's tool."""
    response = cluster.send(DescribeLogDirsRequest(topics=None), broker)
    return [
        {
            "partitions": _partitions(result, topics),
            "error": java_class(result.error_code) if result.error_code else None,
            "logDir": result.log_dir,
        }
        for result in response.results
    ]


def _partitions(result: Any, topics: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "partition": f"{topic.name}-{part.partition_index}",
            "size": part.partition_size,
            "offsetLag": part.offset_lag,
            "isFuture": bool(part.is_future_key),
        }
        for topic in sorted(result.topics, key=lambda topic: topic.name)
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        if not topics or topic.name in topics
    ]
