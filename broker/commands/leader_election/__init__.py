"""`odradek leader-election`: requests leader elections, as Kafka's LeaderElectionCommand.

With `--zookeeper` it finds the brokers in ZooKeeper, so that 0.8's kafka-preferred-replica-election.sh still works.
"""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, connection_options, flag, load_properties
from odradek.broker.commands._shared.zookeeper import find_brokers, zookeeper_option


@click.command(
    "leader-election",
    cls=ClientCommand,
    epilog="Example: odradek leader-election --election-type preferred --all-topic-partitions "
    "--bootstrap-server localhost:9092",
)
@connection_options(config_option="--admin.config", required=False)
@zookeeper_option
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="preferred: elect the preferred replica if it is in sync. unclean: elect any live replica if there is no "
    "leader; records that it has not replicated are lost.",
)
@click.option("--topic", metavar="NAME", help="The topic of --partition.")
@click.option("--partition", type=click.IntRange(min=0), help="One partition of --topic.")
@flag("--all-topic-partitions", "All partitions that are eligible for this election.")
@click.option(
    "--path-to-json-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='File with partitions: {"partitions": [{"topic": "clicks", "partition": 0}]}.',
)
def command(**options: Any) -> None:
    """Elect new leaders of partitions. Exit code 1 if an election fails."""
    _check(options)
    find_brokers(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.leader_election import elections

    partitions = elections.chosen(options)
    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        elections.elect(cluster, options["election_type"].upper(), partitions)


def _check(options: dict[str, Any]) -> None:
    selections = [options["topic"], options["all_topic_partitions"], options["path_to_json_file"]]
    if sum(map(bool, selections)) != 1:
        raise click.UsageError("give exactly one of --topic, --all-topic-partitions and --path-to-json-file")
    if bool(options["topic"]) != (options["partition"] is not None):
        raise click.UsageError("--topic and --partition must be given together")
