"""`odradek reassign-partitions`: moves replicas to other brokers, as Kafka's ReassignPartitionsCommand.

With `--zookeeper`, as in 0.8, it finds the brokers in ZooKeeper. Moves between the log directories of one broker are
not implemented yet.
"""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    exactly_one,
    flag,
    load_properties,
    only_with,
)
from odradek.broker.commands._shared.zookeeper import find_brokers, zookeeper_option

_NEEDS = {
    "--generate": ("--topics-to-move-json-file", "--broker-list"),
    "--execute": ("--reassignment-json-file",),
    "--verify": ("--reassignment-json-file",),
    "--cancel": ("--reassignment-json-file",),
    "--list": (),
}
_BELONGS = {
    "--topics-to-move-json-file": ("--generate",),
    "--broker-list": ("--generate",),
    "--disable-rack-aware": ("--generate",),
    "--reassignment-json-file": ("--execute", "--verify", "--cancel"),
    "--throttle": ("--execute",),
    "--additional": ("--execute",),
    "--preserve-throttles": ("--verify", "--cancel"),
}
_FILE = click.Path(exists=True, dir_okay=False)


@click.command(
    "reassign-partitions",
    cls=ClientCommand,
    epilog="Example: odradek reassign-partitions --execute --reassignment-json-file moves.json "
    "--bootstrap-server localhost:9092",
)
@connection_options(required=False, broker_list=False)
@zookeeper_option
@flag("--generate", "Print the current and a proposed replica assignment; changes nothing.")
@flag("--execute", "Start the reassignment that the file describes.")
@flag("--verify", "Print the progress of the reassignment; removes the throttle when it is complete.")
@flag("--cancel", "Cancel the reassignment of partitions that are still in progress.")
@flag("--list", "Print all partition reassignments in progress.")
@click.option(
    "--reassignment-json-file",
    metavar="FILE",
    type=_FILE,
    help='{"version": 1, "partitions": [{"topic": "clicks", "partition": 0, "replicas": [1, 2]}]}',
)
@click.option(
    "--topics-to-move-json-file",
    metavar="FILE",
    type=_FILE,
    help='With --generate: {"version": 1, "topics": [{"topic": "clicks"}]}',
)
@click.option("--broker-list", metavar="ID,…", help="With --generate: the brokers that get the replicas.")
@flag("--disable-rack-aware", "With --generate: ignore the racks of brokers.")
@click.option(
    "--throttle",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="With --execute: limit of the replication traffic of each broker for the moved replicas, in bytes per second.",
)
@flag("--additional", "With --execute: allowed while other reassignments are in progress; also to change the throttle.")
@flag("--preserve-throttles", "Do not change the throttle.")
def command(**options: Any) -> None:
    """Move replicas of partitions to other brokers."""
    action = _checked(options)
    brokers = _numbers(options["broker_list"] or "")
    find_brokers(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.reassign_partitions import moves, verify

    actions = {
        "--generate": lambda cluster: moves.generate(cluster, brokers, options),
        "--execute": lambda cluster: moves.execute(cluster, options),
        "--verify": lambda cluster: verify.verify(cluster, options),
        "--cancel": lambda cluster: moves.cancel(cluster, options),
        "--list": moves.show,
    }
    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        actions[action](cluster)


def _checked(options: dict[str, Any]) -> str:
    """The action, after a check that all its required options are given and no others."""
    arguments = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    action = exactly_one({name: arguments[name] for name in _NEEDS})
    only_with(action, _BELONGS, arguments)
    missing = [name for name in _NEEDS[action] if not arguments[name]]
    if missing:
        raise click.UsageError(f"{action} needs {' and '.join(missing)}")
    return action


def _numbers(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise click.UsageError(f"--broker-list must be broker ids separated by commas, not '{text}'") from None
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list names a broker twice: {text}")
    return brokers
