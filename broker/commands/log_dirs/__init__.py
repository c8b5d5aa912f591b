"""`odradek log-dirs`: describes the log directories of brokers, as Kafka's LogDirsCommand."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, connection_options, flag, load_properties


@click.command(
    "log-dirs",
    cls=ClientCommand,
    epilog="Example: odradek log-dirs --describe --topic-list clicks --bootstrap-server localhost:9092",
)
@connection_options(broker_list=False)
@flag("--describe", "Print the log directories, and the size and lag of each partition in them.")
@click.option("--topic-list", default="", metavar="NAME,…", help="Only these topics.")
@click.option("--broker-list", default="", metavar="ID,…", help="Only these brokers.")
def command(**options: Any) -> None:
    """Print the log directories of brokers and their partitions, as JSON in the third line."""
    if not options["describe"]:
        raise click.UsageError("give --describe")
    topics = {name for name in options["topic_list"].split(",") if name}
    brokers = _numbers(options["broker_list"])
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.log_dirs import describe_log_dirs

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        describe_log_dirs.describe(cluster, brokers, topics)


def _numbers(text: str) -> set[int]:
    try:
        return {int(part) for part in text.split(",") if part}
    except ValueError:
        raise click.UsageError(f"--broker-list must be broker ids separated by commas, not '{text}'") from None
