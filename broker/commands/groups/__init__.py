"""`odradek groups`: lists groups of all types, as Kafka's GroupsCommand."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    at_most_one,
    connection_options,
    flag,
    load_properties,
)

_TYPES = ("classic", "consumer", "share", "streams")


@click.command(
    "groups",
    cls=ClientCommand,
    epilog="Example: odradek groups --list --bootstrap-server localhost:9092",
)
@connection_options(broker_list=False)
@flag("--list", "Print the name, type and protocol of each group.")
@click.option(
    "--group-type",
    type=click.Choice(_TYPES, case_sensitive=False),
    metavar="TYPE",
    help="Only groups of this type: classic, consumer, share or streams.",
)
@click.option("--protocol", help="Only groups of this protocol.")
@flag("--consumer", "Only consumer groups: of type consumer, or classic with the protocol consumer or none.")
@flag("--share", "Only share groups.")
@flag("--streams", "Only streams groups.")
def command(**options: Any) -> None:
    """Print the groups of a cluster, of all types."""
    if not options["list"]:
        raise click.UsageError("Command must include exactly one action: --list.")
    _check(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.groups import list_groups

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        list_groups.show(cluster, options)


def _check(options: dict[str, Any]) -> None:
    """--consumer, --share and --streams exclude each other and both filters. Raises UsageError."""
    kinds = {f"--{name}": options[name] for name in ("consumer", "share", "streams")}
    at_most_one({**kinds, "--group-type": options["group_type"]})
    at_most_one({**kinds, "--protocol": options["protocol"]})
