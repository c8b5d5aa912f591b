"""`odradek users`: the users that SCRAM authenticates, of a running cluster or before its first start.

No password is an argument: other users of a machine see the arguments of a process.
"""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.broker import configured
from odradek.broker.commands._shared.options import ClientCommand, connection_options, json_option
from odradek.broker.commands._shared.zookeeper import zookeeper_option

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISM = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    help="Default: both. May be repeated.",
)


def _where(function: Any) -> Any:
    """Where the users are: a running cluster, its ZooKeeper, or the broker of a properties file, which is down."""
    function = zookeeper_option(function)
    return configured(connection_options(required=False, broker_list=False)(function))


@click.group("users")
def command() -> None:
    """Add, list and remove the users that SCRAM authenticates.

    With --bootstrap-server of a running cluster; or, so that a broker can have its first user, with the
    SERVER.PROPERTIES of a broker that is down, or --zookeeper.
    """


@command.command("add", cls=ClientCommand)
@click.argument("name")
@_where
@_MECHANISM
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=4096,
    show_default=True,
    help="Iterations of the hash: more slow down logins, and attempts to guess the password.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of stdin.")
def add(name: str, mechanisms: tuple[str, ...], iterations: int, password_stdin: bool, **where: Any) -> None:
    """Add the user NAME, or give it another password; print the lines that use it.

    \b
    Example:
      odradek users add alice server.properties
    """
    from odradek.broker.commands.users import passwords, user_lines
    from odradek.broker.commands.users.places import opened

    chosen = mechanisms or MECHANISMS
    if not name:
        raise click.UsageError("NAME must not be empty")
    password = passwords.from_stdin() if password_stdin else passwords.prompted(name)
    with opened(where) as place:
        place.set([passwords.salted(name, mechanism, password, iterations) for mechanism in chosen])
        click.echo(f"added {name}: {', '.join(chosen)}")
        click.echo(user_lines.text(place.address, name, chosen[-1]))


@command.command("list", cls=ClientCommand, no_args_is_help=False)
@_where
@json_option
def list_users(as_json: bool, **where: Any) -> None:
    """List users with their mechanisms and iterations.

    \b
    Example:
      odradek users list --bootstrap-server localhost:9093 --command-config client.properties
    """
    from odradek.broker.commands._shared.tables import print_json, rows
    from odradek.broker.commands.users.places import opened

    with opened(where) as place:
        found = place.list()
    table = [(user, mechanism, iterations) for user, held in sorted(found.items()) for mechanism, iterations in held]
    if as_json:
        print_json([{"user": user, "mechanism": name, "iterations": number} for user, name, number in table])
    else:
        click.echo("\n".join(rows(("USER", "MECHANISM", "ITERATIONS"), (30, 15, 10), table)))


@command.command("remove", cls=ClientCommand)
@click.argument("name")
@_where
@_MECHANISM
def remove(name: str, mechanisms: tuple[str, ...], **where: Any) -> None:
    """Remove the credentials of the user NAME. Its open connections stay.

    \b
    Example:
      odradek users remove alice --bootstrap-server localhost:9093 --command-config client.properties
    """
    from odradek.broker.commands.users.places import opened
    from odradek.broker.errors import OdradekError

    with opened(where) as place:
        held = [mechanism for mechanism, _ in place.list(name).get(name, [])]
        if missing := [one for one in mechanisms if one not in held]:
            raise OdradekError(f"{name} has no credential for {', '.join(missing)}")
        if not held:
            raise OdradekError(f"there is no user {name}")
        place.delete(name, list(mechanisms) or held)
    click.echo(f"removed {name}: {', '.join(mechanisms or held)}")
