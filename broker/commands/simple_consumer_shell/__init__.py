"""`odradek simple-consumer-shell`: prints one partition from a given replica, as SimpleConsumerShell of Kafka 0.8.2."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    flag,
    key_values,
    load_properties,
)
from odradek.protocol.wire import INT32_MAX

EARLIEST, LATEST = -2, -1
LEADER = -1
_CHECKSUM = "checksum"
_FORMATTERS = {
    "default": "default",
    "kafka.tools.DefaultMessageFormatter": "default",
    "kafka.tools.NoOpMessageFormatter": "noop",
    "kafka.tools.ChecksumMessageFormatter": _CHECKSUM,
}


@click.command(
    "simple-consumer-shell",
    cls=ClientCommand,
    epilog="Example: odradek simple-consumer-shell --broker-list localhost:9092 --topic clicks --partition 0 "
    "--no-wait-at-logend",
)
@connection_options()
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="The partition to read.")
@click.option(
    "--replica", type=int, default=LEADER, show_default=True, metavar="ID",
    help="The id of the broker whose replica is read; -1: the leader.",
)  # fmt: skip
@click.option(
    "--offset", type=int, default=EARLIEST, show_default=True, help="Where to start; -2: the earliest, -1: the latest."
)
@click.option("--clientId", "client_id", default="SimpleConsumerShell", show_default=True, help="The client id.")
@click.option(
    "--fetchsize", type=click.IntRange(min=1), default=1 << 20, show_default=True, metavar="BYTES",
    help="How much to fetch at once.",
)  # fmt: skip
@click.option(
    "--formatter", type=click.Choice(list(_FORMATTERS)), default="default", show_default=True, metavar="CLASS",
    help="kafka.tools.DefaultMessageFormatter, kafka.tools.NoOpMessageFormatter or "
    "kafka.tools.ChecksumMessageFormatter.",
)  # fmt: skip
@click.option(
    "--property", "formatter_properties", multiple=True, metavar="KEY=VALUE",
    help="How messages are printed: print.key, key.separator, line.separator and the others of console-consumer.",
)  # fmt: skip
@flag("--print-offsets", "Print the next offset before each message.")
@click.option(
    "--max-wait-ms", type=click.IntRange(min=0), default=1000, show_default=True,
    help="Milliseconds that a fetch waits for new messages.",
)  # fmt: skip
@click.option("--max-messages", type=int, default=INT32_MAX, metavar="N", help="Exit after this many messages.")
@flag("--skip-message-on-error", "Skip a message that cannot be printed.")
@flag("--no-wait-at-logend", "Exit at the end of the log instead of waiting for new messages.")
def command(**options: Any) -> None:
    """Print the messages of one partition, each followed by a newline, until Ctrl-C or a limit."""
    formatting = key_values(options["formatter_properties"])
    if options["offset"] < EARLIEST:
        click.echo(f"Invalid starting offset: {options['offset']}", err=True)
        raise SystemExit(1)
    properties = load_properties(options["command_config"])
    properties.setdefault("client.id", options["client_id"])
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.console_consumer.formatters import formatter
    from odradek.broker.commands.simple_consumer_shell import read_partition

    end_on_sigterm()
    name = _FORMATTERS[options["formatter"]]
    show = read_partition.checksums if name == _CHECKSUM else formatter(name, formatting)
    with Cluster(options["bootstrap_server"], properties) as cluster:
        raise SystemExit(read_partition.run(cluster, options, show))
