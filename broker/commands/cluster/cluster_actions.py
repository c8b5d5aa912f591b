"""Implements `odradek cluster`; the output lines are those of Kafka's ClusterTool."""

from __future__ import annotations

from collections.abc import Mapping

import click

from odradek.broker.commands._shared.client import Cluster


def show_id(bootstrap: str, config: Mapping[str, str]) -> None:
    """Print the id of the cluster."""
    with Cluster(bootstrap, config) as cluster:
        click.echo(f"Cluster ID: {cluster.metadata([]).cluster_id}")


def unregister(bootstrap: str, config: Mapping[str, str], _broker: int) -> None:
    """Print that no broker can be unregistered, once the cluster has answered."""
    with Cluster(bootstrap, config) as cluster:
        cluster.metadata([])
    click.echo("The target cluster does not support the broker unregistration API.")
