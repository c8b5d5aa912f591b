"""`odradek replay-log-producer`: sends what is in one topic to another, as ReplayLogProducer of Kafka 0.8.2."""

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
from odradek.broker.commands._shared.zookeeper import bootstrap, check_config_file, zk_config_option


@click.command(
    "replay-log-producer",
    cls=ClientCommand,
    epilog="Example: odradek replay-log-producer --broker-list localhost:9092 --inputtopic clicks --outputtopic copy",
)
@connection_options()
@click.option(
    "--zookeeper", metavar="HOST:PORT,…/PATH",
    help="The ZooKeeper of the cluster to read from; by default it is the cluster that is written to.",
)  # fmt: skip
@zk_config_option
@click.option("--inputtopic", required=True, metavar="TOPIC", help="The topic to read, from its beginning.")
@click.option("--outputtopic", required=True, metavar="TOPIC", help="The topic to write.")
@click.option("--messages", type=int, default=-1, metavar="N", help="How many each thread sends; -1: all.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Number of threads.")
@click.option("--reporting-interval", type=int, default=5000, metavar="N", help="Messages between progress lines.")
@click.option("--property", "producer_properties", multiple=True, metavar="KEY=VALUE", help="Of the producer.")
@flag("--sync", "Wait for the acknowledgement of each message before the next.")
def command(**options: Any) -> None:
    """Send all messages of a topic, with their keys, to another; end after 10 s without a new message.

    Exit code 1 if messages were not sent. It joins no group and keeps no offsets.
    """
    check_config_file(options)
    properties = load_properties(options["command_config"])
    source = options["bootstrap_server"]
    if options["zookeeper"]:
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        source = bootstrap(options["zookeeper"], options["zk_tls_config_file"], protocol)
    from odradek.broker.commands.replay_log_producer import copy_messages

    end_on_sigterm()
    of_producer = properties | key_values(options["producer_properties"])
    raise SystemExit(copy_messages.run(options, source, properties, of_producer))
