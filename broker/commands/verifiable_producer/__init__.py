"""`odradek verifiable-producer`: sends numbers and prints what became of each, as Kafka's VerifiableProducer."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    load_properties,
)


@click.command(
    "verifiable-producer",
    cls=ClientCommand,
    epilog="Example: odradek verifiable-producer --bootstrap-server localhost:9092 --topic clicks --max-messages 10",
)
@connection_options(config_option="--producer.config")
@click.option("--topic", required=True, help="The topic to send to.")
@click.option("--max-messages", type=click.IntRange(min=-1), default=-1, help="Number of records; -1: until stopped.")
@click.option("--throughput", type=int, default=-1, help="Maximum records per second; -1: no limit.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "-1"]), default="-1", show_default=True, help="acks of the producer."
)
@click.option(
    "--message-create-time",
    type=int,
    default=-1,
    metavar="MS",
    help="The timestamp of the first record; that of the others advances with the clock. -1: the time of each send.",
)
@click.option("--value-prefix", type=int, metavar="N", help="Values begin with this number and a dot.")
@click.option(
    "--repeating-keys", type=click.IntRange(min=1), metavar="N", help="Keys are 0 to N-1, again and again; else none."
)
def command(**options: Any) -> None:
    """Send the numbers 0, 1, 2, … without retries, and print an event as JSON for each: acknowledged or failed."""
    properties = {"acks": options["acks"], "retries": "0"} | load_properties(options["command_config"])
    from odradek.broker.commands.verifiable_producer import send_numbers

    end_on_sigterm()
    send_numbers.run(options, properties)
