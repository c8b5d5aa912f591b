"""Implements `odradek adopt --defaults`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from odradek.broker.commands._shared.client import TOPIC, Cluster, check
from odradek.broker.errors import OdradekError
from odradek.cluster.configs.adopted_configs import MARK, UNKNOWN_RETENTION

_DELETE = 1


def use_defaults(cluster: Cluster, topics: Sequence[str]) -> None:
    """Unset the configs of topics with unknown retention, of `topics` or of all such topics. Raises OdradekError."""
    marked = _marked(cluster)
    if others := sorted(set(topics) - set(marked)):
        raise OdradekError(f"the retention of these topics is already known: {', '.join(others)}")
    chosen = sorted(topics) or marked
    if chosen:
        _unset(cluster, chosen)
    for name in chosen:
        click.echo(f"Topic {name} now uses the broker's defaults.")
    if not chosen:
        click.echo("No topic has an unknown retention.")


def _marked(cluster: Cluster) -> list[str]:
    names = sorted(topic.name for topic in cluster.metadata().topics)
    found = cluster.configs(TOPIC, names) if names else {}
    return [name for name in names if any(entry.name == MARK and entry.value == "true" for entry in found[name])]


def _unset(cluster: Cluster, topics: Sequence[str]) -> None:
    make = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [make.AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in UNKNOWN_RETENTION]
    resources = [make(resource_type=TOPIC, resource_name=name, configs=changes) for name in topics]
    for result in cluster.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False)).responses:
        check(result.error_code, result.error_message)
