"""`odradek configs`: describes and alters configurations of running brokers, as Kafka's ConfigCommand."""

from __future__ import annotations

import re
from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    exactly_one,
    flag,
    json_option,
    load_properties,
)

RESOURCES = ("topics", "brokers", "broker-loggers", "client-metrics", "groups")
QUOTAS = ("users", "clients", "ips")
# `--topic NAME` is `--entity-type topics --entity-name NAME`, and so on
_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "client_metrics": "client-metrics",
    "group": "groups",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
_DEFAULTS = {"broker": "brokers", "user": "users", "client": "clients", "ip": "ips"}
_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")  # not within [ ]


class ConfigsCommand(ClientCommand):
    """Reads `--entity-default` as `--entity-name ''`, so that names keep the order of their types."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = [word for arg in args for word in (["--entity-name", ""] if arg == "--entity-default" else [arg])]
        return super().parse_args(ctx, named)


@click.command(
    "configs",
    cls=ConfigsCommand,
    epilog="Example: odradek configs --bootstrap-server localhost:9092 --alter --topic clicks "
    "--add-config retention.ms=3600000",
)
@connection_options()
@flag("--describe", "Print dynamic configurations; with --all, all configurations.")
@flag("--alter", "Set or delete configurations.")
@flag("--all", "With --describe: also static configurations and defaults.")
@click.option("--entity-type", multiple=True, type=click.Choice([*RESOURCES, *QUOTAS]), help="Type of the entity.")
@click.option("--entity-name", multiple=True, help="Name of the entity; for a broker, its id.")
@flag("--entity-default", "Instead of a name: the default of all entities of the type.")
@click.option("--topic", help="The topic with this name.")
@click.option("--broker", help="The broker with this id.")
@flag("--broker-defaults", "The cluster-wide default of all brokers.")
@click.option("--broker-logger", help="The loggers of the broker with this id.")
@click.option("--group", help="The group with this name.")
@click.option("--client-metrics", help="The client metrics subscription with this name.")
@click.option("--user", help="Quotas of this user, and its SCRAM credentials.")
@flag("--user-defaults", "Default quotas of users.")
@click.option("--client", help="Quotas of this client id.")
@flag("--client-defaults", "Default quotas of client ids.")
@click.option("--ip", help="Quotas of this address.")
@flag("--ip-defaults", "Default quotas of addresses.")
@click.option(
    "--add-config",
    metavar="K=V,K=[V,V],…",
    help="Configurations to set; a value with commas needs square brackets.",
)
@click.option("--add-config-file", metavar="FILE", help="Properties file with configurations to set.")
@click.option("--delete-config", multiple=True, metavar="K,K", help="Configurations to delete.")
@flag("--force", "Accepted and ignored: the command never prompts.")
@json_option
def command(**options: Any) -> None:
    """Describe or alter configurations of topics, brokers, groups and clients.

    --describe marks Kafka configurations that have no effect in an Odradek broker; --alter cannot set them.
    """
    action = exactly_one({"--describe": options["describe"], "--alter": options["alter"]})
    types, names = _entities(options)
    _check(action, options, types, names)
    added, deleted = _added(options), _deleted(options)
    if action == "--alter" and not (added or deleted):
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.configs import entities, quotas

    module: Any = quotas if types[0] in QUOTAS else entities
    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        if action == "--describe":
            module.describe(cluster, types, names, options)
        else:
            module.alter(cluster, types, names, added, deleted)
            click.echo(_completed(types[0], names[0]))


def _completed(entity_type: str, name: str) -> str:
    if name:
        return f"Completed updating config for {entity_type.removesuffix('s')} {name}."
    return f"Completed updating default config for {entity_type} in the cluster."


def _entities(options: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Types and names (empty: the default), from the long or the short options. Raises UsageError."""
    types, names = list(options["entity_type"]), list(options["entity_name"])
    short = {_SHORT[key]: options[key] for key in _SHORT if options[key] is not None}
    short |= {kind: "" for key, kind in _DEFAULTS.items() if options[f"{key}_defaults"]}
    if short and (types or names):
        raise click.UsageError(
            "--entity-type, --entity-name and --entity-default cannot be given with options such as --topic"
        )
    if short:
        types, names = list(short), list(short.values())
    if not types:
        raise click.UsageError("give --entity-type, or an option such as --topic or --broker")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise click.UsageError("only users and clients can be given together")
    return types, names


def _check(action: str, options: dict[str, Any], types: list[str], names: list[str]) -> None:
    changes = options["add_config"] or options["add_config_file"] or options["delete_config"]
    if action == "--describe" and changes:
        raise click.UsageError("--add-config and --delete-config cannot be given with --describe")
    if action == "--alter" and len(names) != len(types):
        raise click.UsageError(f"--alter needs a name (or default) of {', '.join(types)}")
    if types[0] in ("brokers", "broker-loggers"):
        for name in filter(None, names):
            if not name.isdecimal():
                raise click.UsageError(f"the name of a broker must be its id, a number, not '{name}'")
    if "" in names and types[0] in ("topics", "broker-loggers", "client-metrics", "groups"):
        raise click.UsageError(f"{types[0]} have no default")


def _added(options: dict[str, Any]) -> dict[str, str]:
    """The configurations to set. Raises UsageError."""
    if options["add_config"] and options["add_config_file"]:
        raise click.UsageError("--add-config and --add-config-file cannot be given together")
    found = load_properties(options["add_config_file"])
    for pair in _COMMA.split(options["add_config"]) if options["add_config"] else ():
        key, equals, value = pair.partition("=")
        if key.strip().startswith("SCRAM-"):
            raise click.UsageError("use `odradek users add`: other users of this machine see a password in an argument")
        if not equals:
            raise click.UsageError(f"'{pair}' is not of the form key=value")
        found[key.strip()] = value.strip().replace("[", "").replace("]", "")
    for key in found:
        if not _KEY.fullmatch(key):
            raise click.UsageError(f"unknown configuration key '{key}'")
    return found


def _deleted(options: dict[str, Any]) -> list[str]:
    return [name.strip() for text in options["delete_config"] for name in text.split(",") if name.strip()]
