"""`odradek consumer-offset-checker`: offsets and lag of a group, as ConsumerOffsetChecker of Kafka 0.8.2.

`odradek consumer-groups --describe` is its successor; this one also finds the offsets that groups of 0.8 keep in
ZooKeeper.
"""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, flag, load_properties
from odradek.broker.commands._shared.zookeeper import find_brokers, opened, zookeeper_option


@click.command(
    "consumer-offset-checker",
    cls=ClientCommand,
    epilog="Example: odradek consumer-offset-checker --zookeeper localhost:2181 --group readers --topic clicks",
)
@zookeeper_option
@click.option("--topic", metavar="TOPIC,…", help="Topics; by default those that consumers of the group own.")
@click.option("--group", required=True, help="The consumer group.")
@flag("--broker-info", "Also print the address of each broker that leads one of the partitions.")
@click.option("--socket.timeout.ms", "request_ms", type=int, metavar="MS", help="As request.timeout.ms of the client.")
@click.option("--retry.backoff.ms", "backoff_ms", type=int, metavar="MS", help="As retry.backoff.ms of the client.")
@click.option("--command-config", metavar="FILE", help="Properties file with client configurations.")
def command(**options: Any) -> None:
    """Print offset, log size, lag and owner of each partition, from Kafka or else from ZooKeeper.

    As the tool of Kafka 0.8.2 it prints "Exiting due to" and ends with exit code 0 where a group has no offsets.
    """
    if not options["zookeeper"]:
        raise click.UsageError("give --zookeeper")
    config = load_properties(options["command_config"])
    for name, key in (("request_ms", "request.timeout.ms"), ("backoff_ms", "retry.backoff.ms")):
        config |= {key: str(options[name])} if options[name] is not None else {}
    options["bootstrap_server"] = None
    find_brokers(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.consumer_offset_checker import offset_lines

    where = options["zookeeper"], options["zk_tls_config_file"]
    with opened(*where) as tree, Cluster(options["bootstrap_server"], config) as cluster:
        offset_lines.show(cluster, tree, options)
