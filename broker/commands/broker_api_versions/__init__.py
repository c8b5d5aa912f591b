"""`odradek broker-api-versions`: the APIs of each broker and their versions, as Kafka's BrokerApiVersionsCommand."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, connection_options, load_properties


@click.command(
    "broker-api-versions",
    cls=ClientCommand,
    epilog="Example: odradek broker-api-versions --bootstrap-server localhost:9092",
)
@connection_options(broker_list=False)
def command(**options: Any) -> None:
    """Print which versions of each API every broker has, and which of them this client uses."""
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.broker_api_versions import api_versions

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        api_versions.show(cluster)
