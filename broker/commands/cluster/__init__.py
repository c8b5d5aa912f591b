"""`odradek cluster`: the id of a cluster, as Kafka's ClusterTool."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, load_properties


def _connection(function: Any) -> Any:
    """The options of both actions, with the letters of Kafka's tool."""
    function = click.option("--config", "-c", metavar="FILE", help="Properties file with client configurations.")(
        function
    )
    return click.option(
        "--bootstrap-server", "-b", required=True, metavar="HOST:PORT,…", help="The brokers to connect to first."
    )(function)


@click.group(
    "cluster", no_args_is_help=True, epilog="Example: odradek cluster cluster-id --bootstrap-server localhost:9092"
)
def command() -> None:
    """Print the id of a cluster."""


@command.command("cluster-id", cls=ClientCommand)
@_connection
def cluster_id(bootstrap_server: str, config: str | None) -> None:
    """Print the id of the cluster."""
    from odradek.broker.commands.cluster import cluster_actions

    cluster_actions.show_id(bootstrap_server, load_properties(config))


@command.command(cls=ClientCommand)
@_connection
@click.option("--id", "-i", "broker", type=int, required=True, help="The id of the broker.")
def unregister(bootstrap_server: str, config: str | None, broker: int) -> None:
    """Refused: a broker of a cluster with ZooKeeper is registered as long as it runs."""
    from odradek.broker.commands.cluster import cluster_actions

    cluster_actions.unregister(bootstrap_server, load_properties(config), broker)
