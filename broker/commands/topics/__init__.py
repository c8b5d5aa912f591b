"""`odradek topics`: creates, lists, describes, alters and deletes topics, as Kafka's TopicCommand.

With `--bootstrap-server` as in 3.9, over the wire; with `--zookeeper` as in 0.8.2, on the metadata tree.
"""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    at_most_one,
    connection_options,
    exactly_one,
    flag,
    json_option,
    key_values,
    load_properties,
    only_with,
)
from odradek.broker.commands._shared.zookeeper import check_one, zookeeper_option

_REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
_BELONGS = {
    "--config": ("--create", "--alter"),
    "--delete-config": ("--alter",),
    "--partitions": ("--create", "--alter"),
    "--replication-factor": ("--create",),
    "--replica-assignment": ("--create", "--alter"),
    "--if-not-exists": ("--create",),
    "--if-exists": ("--alter", "--delete", "--describe"),
    "--exclude-internal": ("--list", "--describe"),
    "--topic-id": ("--describe",),
    "--topics-with-overrides": ("--describe",),
    "--under-replicated-partitions": ("--describe",),
    "--unavailable-partitions": ("--describe",),
    "--under-min-isr-partitions": ("--describe",),
    "--at-min-isr-partitions": ("--describe",),
    "--json": ("--list", "--describe"),
}
_OF_BROKERS = ("topic_id", "under_min_isr_partitions", "at_min_isr_partitions", "command_config")  # not in 0.8.2


@click.command(
    "topics",
    cls=ClientCommand,
    epilog="Example: odradek topics --create --topic clicks --partitions 3 "
    "--config retention.ms=3600000 --bootstrap-server localhost:9092",
)
@connection_options(required=False)
@zookeeper_option
@flag("--create", "Create a topic.")
@flag("--list", "Print the names of all topics, or of those that match --topic.")
@flag("--describe", "Print leaders, replicas and overridden configurations.")
@flag(
    "--alter", "Add partitions to topics; with --zookeeper also change configurations (otherwise see odradek configs)."
)
@flag("--delete", "Delete topics.")
@click.option(
    "--topic",
    metavar="NAME",
    help="The topic; except with --create, a regular expression that must match the whole name.",
)
@click.option("--topic-id", metavar="ID", help="With --describe: the topic with this id.")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Number of partitions (default: the broker's num.partitions)."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Replication factor (default: the broker's default.replication.factor).",
)
@click.option(
    "--replica-assignment",
    metavar="B:B,B:B,…",
    help="Broker ids of the replicas of each partition, the preferred leader first.",
)
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="A configuration of the new topic.")
@click.option(
    "--delete-config",
    multiple=True,
    metavar="NAME",
    help="With --zookeeper --alter: a configuration override to delete.",
)
@flag("--if-not-exists", "With --create: no error when the topic exists.")
@flag("--if-exists", "No error when no topic matches.")
@flag("--under-replicated-partitions", "Only partitions with fewer in-sync replicas than replicas.")
@flag("--unavailable-partitions", "Only partitions without a live leader.")
@flag("--under-min-isr-partitions", "Only partitions with fewer in-sync replicas than min.insync.replicas.")
@flag("--at-min-isr-partitions", "Only partitions with just min.insync.replicas in sync.")
@flag("--topics-with-overrides", "Only topics with configuration overrides, without partitions.")
@flag("--exclude-internal", "Exclude internal topics such as __consumer_offsets.")
@json_option
def command(**options: Any) -> None:
    """Create, list, describe, alter or delete topics."""
    action = _checked(options)
    if options["zookeeper"]:
        _on_the_tree(action, options)
    else:
        _over_the_wire(action, options)


def _over_the_wire(action: str, options: dict[str, Any]) -> None:
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.topics import change_topics, describe_topics

    actions = {
        "--create": change_topics.create,
        "--list": change_topics.show_names,
        "--alter": change_topics.alter,
        "--delete": change_topics.delete,
        "--describe": describe_topics.describe,
    }
    config = load_properties(options["command_config"])
    with Cluster(options["bootstrap_server"], config) as cluster:
        actions[action](cluster, options)


def _on_the_tree(action: str, options: dict[str, Any]) -> None:
    from odradek.broker.commands._shared import zookeeper
    from odradek.broker.commands.topics import change_topics_08, describe_topics_08

    actions = {
        "--create": change_topics_08.create,
        "--list": change_topics_08.show_names,
        "--alter": change_topics_08.alter,
        "--delete": change_topics_08.delete,
        "--describe": describe_topics_08.describe,
    }
    with zookeeper.opened(options["zookeeper"], options["zk_tls_config_file"]) as tree:
        actions[action](tree, options)


def _checked(options: dict[str, Any]) -> str:
    """Check the options against each other and parse those with a special syntax; returns the action."""
    names = ("create", "list", "describe", "alter", "delete")
    action = exactly_one({f"--{name}": options[name] for name in names})
    options["as_json"] = options.get("as_json", False)
    arguments = options | {"json": options["as_json"]}
    only_with(action, _BELONGS, {name: arguments[name[2:].replace("-", "_")] for name in _BELONGS})
    if action in ("--create", "--alter", "--delete") and not options["topic"]:
        raise click.UsageError(f"{action} needs --topic")
    _check_where(action, options)
    if action == "--create" and options["replica_assignment"]:
        sizes = {f"--{name}": options[name.replace("-", "_")] for name in ("partitions", "replication-factor")}
        at_most_one({"--replica-assignment": True} | sizes)
    if options["topics_with_overrides"]:
        at_most_one({f"--{name}": options[name.replace("-", "_")] for name in ("topics-with-overrides", *_REPORTS)})
    options["config"] = {name: value.strip() for name, value in key_values(options["config"]).items()}
    options["replica_assignment"] = _assignment(options["replica_assignment"])
    options["reports"] = [name for name in _REPORTS if options[name]]
    return action


def _check_where(action: str, options: dict[str, Any]) -> None:
    """Check options that work only with brokers or only with ZooKeeper."""
    check_one(options)
    configs = options["config"] or options["delete_config"]
    if options["zookeeper"]:
        at_most_one({"--zookeeper": True} | {f"--{name.replace('_', '-')}": options[name] for name in _OF_BROKERS})
        sized = options["partitions"] and options["replication_factor"]
        if action == "--create" and not (sized or options["replica_assignment"]):
            raise click.UsageError("--create with --zookeeper needs --partitions and --replication-factor")
        if action == "--alter" and not (options["partitions"] or configs):
            raise click.UsageError("--alter needs --partitions, --config or --delete-config")
    elif action == "--alter" and options["partitions"] is None:
        raise click.UsageError("--alter needs --partitions (configurations: see odradek configs)")
    elif action == "--alter" and configs:
        raise click.UsageError("--alter takes configurations only with --zookeeper: see odradek configs")


def _assignment(text: str | None) -> list[list[int]]:
    """`0:1,1:0` as [[0, 1], [1, 0]]. Raises UsageError."""
    if not text:
        return []
    try:
        replicas = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment must be broker ids such as 0:1,1:0, not '{text}'") from None
    for index, brokers in enumerate(replicas):
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"partition {index} names a broker twice: {text}")
        if len(brokers) != len(replicas[0]):
            raise click.UsageError(f"partition {index} has a different number of replicas than partition 0: {text}")
    return replicas
