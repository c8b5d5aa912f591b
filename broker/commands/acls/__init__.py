"""`odradek acls`: adds, removes and lists ACLs, as Kafka's AclCommand (kafka-acls.sh)."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    exactly_one,
    flag,
    load_properties,
)

_PATTERN_TYPES = ("any", "match", "literal", "prefixed")
_ROLES = ("producer", "consumer")


@click.command(
    "acls",
    cls=ClientCommand,
    epilog="Example: odradek acls --bootstrap-server localhost:9092 --add --allow-principal User:alice "
    "--producer --topic clicks",
)
@connection_options(broker_list=False)
@flag("--add", "Add ACLs.")
@flag("--remove", "Remove ACLs.")
@flag("--list", "List the ACLs of all resources, or of the given ones.")
@click.option("--topic", multiple=True, help="The topic that the ACLs are for; * is all topics. May be repeated.")
@click.option("--group", multiple=True, help="The consumer group; * is all groups. May be repeated.")
@flag("--cluster", "The cluster.")
@click.option("--transactional-id", multiple=True, help="The transactional id; * is all. May be repeated.")
@click.option("--delegation-token", multiple=True, help="The delegation token; * is all. May be repeated.")
@click.option(
    "--user-principal", multiple=True, help="Owner of delegation tokens, such as User:alice. May be repeated."
)
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
    default="literal",
    show_default=True,
    help="How resource names match. With --list and --remove, any selects the name with every type, and match all ACLs "
    "that affect the resource.",
)
@click.option("--operation", multiple=True, help="An operation, such as Read. Default: All. May be repeated.")
@click.option("--allow-principal", multiple=True, metavar="TYPE:NAME", help="Principal to allow; User:* is all.")
@click.option("--deny-principal", multiple=True, metavar="TYPE:NAME", help="Principal to deny; precedes other ACLs.")
@click.option(
    "--allow-host",
    multiple=True,
    help="Host of --allow-principal: an address, or a network such as 10.0.0.0/8. Default: all.",
)
@click.option("--deny-host", multiple=True, help="Host of --deny-principal: an address. Default: all.")
@click.option("--principal", multiple=True, metavar="TYPE:NAME", help="With --list: only ACLs of this principal.")
@flag("--producer", "Write, Describe and Create for the topics, Write and Describe for the transactional ids.")
@flag("--consumer", "Read and Describe for the topics, Read for the groups.")
@flag("--idempotent", "With --producer: IdempotentWrite on the cluster.")
@flag("--force", "With --remove: do not ask for confirmation.")
def command(**options: Any) -> None:
    """Add, remove and list ACLs: the operations that principals on hosts may or may not do on resources."""
    action = exactly_one({f"--{name}": options[name] for name in ("add", "remove", "list")})
    _check(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.acls import acl_options, change_acls, list_acls

    wanted = acl_options.listed(options) if action == "--list" else acl_options.changed(options)
    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        if action == "--add":
            change_acls.add(cluster, wanted)
        elif action == "--remove":
            change_acls.remove(cluster, wanted, force=options["force"])
        else:
            list_acls.print_all(cluster, wanted, acl_options.principals(options["principal"]))


def _check(options: dict[str, Any]) -> None:
    """The rules between options, in Kafka's order. Raises UsageError."""
    if options["add"] and options["resource_pattern_type"].lower() in ("any", "match"):
        raise click.UsageError("--add needs --resource-pattern-type literal or prefixed")
    if options["list"]:
        _refuse(options, "--list", (*_ROLES, "allow_host", "allow_principal", "deny_host", "deny_principal"))
    for role in _ROLES:
        if options[role]:
            _refuse(options, f"--{role}", ("operation", "deny_principal", "deny_host"))
    if options["principal"] and not options["list"]:
        raise click.UsageError("--principal can be given with --list only")
    _check_roles(options)


def _check_roles(options: dict[str, Any]) -> None:
    if options["producer"] and not options["topic"]:
        raise click.UsageError("--producer needs --topic")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("--idempotent can be given with --producer only")
    if options["consumer"]:
        if not (options["topic"] and options["group"]):
            raise click.UsageError("--consumer needs --topic and --group")
        if not options["producer"]:
            _refuse(options, "--consumer", ("cluster", "transactional_id"))


def _refuse(options: dict[str, Any], option: str, others: tuple[str, ...]) -> None:
    for other in others:
        if options[other]:
            raise click.UsageError(f"--{other.replace('_', '-')} cannot be given with {option}")
