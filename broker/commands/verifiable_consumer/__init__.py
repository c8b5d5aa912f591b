"""`odradek verifiable-consumer`: reads as a member of a group and prints each event, as Kafka's VerifiableConsumer."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    flag,
    load_properties,
)

_PROTOCOL = "--group-protocol"


@click.command(
    "verifiable-consumer",
    cls=ClientCommand,
    epilog="Example: odradek verifiable-consumer --bootstrap-server localhost:9092 --topic clicks --group-id readers",
)
@connection_options(config_option="--consumer.config")
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--group-id", required=True, help="The consumer group.")
@click.option("--group-instance-id", metavar="ID", help="The group.instance.id of a static member.")
@click.option(
    _PROTOCOL,
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    default="classic",
    show_default=True,
    help="The group protocol; this client has only the classic one.",
)
@click.option("--group-remote-assignor", metavar="NAME", help="Only used with the group protocol consumer.")
@click.option("--max-messages", type=click.IntRange(min=-1), default=-1, help="Number of records; -1: until stopped.")
@click.option("--session-timeout", type=click.IntRange(min=1), default=30_000, metavar="MS", help="session.timeout.ms.")
@flag("--verbose", "Print an event for each record.")
@flag("--enable-autocommit", "Commit offsets from time to time instead of after each batch.")
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    show_default=True,
    help="Where to start without a committed offset.",
)
@click.option(
    "--assignment-strategy",
    default="range",
    show_default=True,
    metavar="NAME",
    help="range, roundrobin, sticky or cooperative-sticky; Kafka's class names are accepted too.",
)
def command(**options: Any) -> None:
    """Read a topic and print an event as JSON for each assignment, batch of records and commit."""
    if options["group_protocol"].lower() != "classic":
        raise click.UsageError(f"{_PROTOCOL} must be classic: this client does not have the protocol of KIP-848")
    properties = load_properties(options["command_config"])
    from odradek.broker.commands.verifiable_consumer import read_batches

    end_on_sigterm()
    read_batches.run(options, properties)
