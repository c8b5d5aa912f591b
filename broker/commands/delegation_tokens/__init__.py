"""`odradek delegation-tokens`: creates, renews, expires and describes tokens, as kafka-delegation-tokens.sh."""

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

_ALLOWED = {
    "--max-life-time-period": ("--create",),
    "--renewer-principal": ("--create",),
    "--owner-principal": ("--create", "--describe"),
    "--renew-time-period": ("--renew",),
    "--expiry-time-period": ("--expire",),
    "--hmac": ("--renew", "--expire"),
}
_REQUIRED = {
    "--create": ("--max-life-time-period",),
    "--renew": ("--hmac", "--renew-time-period"),
    "--expire": ("--hmac", "--expiry-time-period"),
    "--describe": (),
}


@click.command(
    "delegation-tokens",
    cls=ClientCommand,
    epilog="Example: odradek delegation-tokens --bootstrap-server localhost:9093 --command-config client.properties "
    "--create --max-life-time-period -1",
)
@connection_options(broker_list=False)
@flag("--create", "Create a token.")
@flag("--renew", "Renew the token with this --hmac.")
@flag("--expire", "Set when the token with this --hmac expires.")
@flag("--describe", "Print the tokens that this client may see.")
@click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="Owner of the token, or of the tokens.")
@click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="Principal that may also renew it.")
@click.option("--max-life-time-period", type=int, metavar="MS", help="-1: delegation.token.max.lifetime.ms.")
@click.option("--renew-time-period", type=int, metavar="MS", help="-1: delegation.token.expiry.time.ms.")
@click.option("--expiry-time-period", type=int, metavar="MS", help="-1: the token is deleted at once.")
@click.option(
    "--hmac", metavar="BASE64", help="The token's secret; - reads it from stdin, which no other process sees."
)
def command(**options: Any) -> None:
    """Create, renew, expire or describe delegation tokens, over an authenticated connection (--command-config).

    A token authenticates as its owner by SCRAM with tokenauth=true: its id is the user name, its HMAC the password.
    """
    action = exactly_one({f"--{name}": options[name] for name in ("create", "renew", "expire", "describe")})
    given = {name: options[name.removeprefix("--").replace("-", "_")] for name in _ALLOWED}
    only_with(action, _ALLOWED, given)
    for name in _REQUIRED[action]:
        if given[name] is None:
            raise click.UsageError(f"{action} needs {name}")
    if not options["command_config"]:
        raise click.UsageError("give --command-config: tokens need an authenticated connection")
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.delegation_tokens import token_actions

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        token_actions.ACTIONS[action](cluster, options)
