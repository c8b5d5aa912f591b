"""`odradek tls`: certificates for a broker and its clients, signed by a CA of their own.

`init` makes a directory with the CA, the broker's and the clients' certificates; `renew` replaces the certificates in
it, which a running broker takes over without a restart.
"""

from __future__ import annotations

from pathlib import Path

import click

_DIRECTORY = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("tls"),
    show_default=True,
    metavar="DIR",
    help="Directory of keys and certificates.",
)
_DAYS = click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of the certificates."
)


@click.group("tls")
def command() -> None:
    """Make and renew certificates for a broker and its clients."""


@command.command("init")
@click.option(
    "--hostname",
    "hostnames",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A name or address that clients connect to. May be repeated.",
)
@click.option(
    "--client", "clients", multiple=True, default=("client",), metavar="NAME", help="Name of a client. May be repeated."
)
@_DIRECTORY
@_DAYS
def init(hostnames: tuple[str, ...], clients: tuple[str, ...], directory: Path, days: int) -> None:
    """Make a CA, a certificate of the broker and one of each client; print the lines that use them.

    \b
    Example:
      odradek tls init --hostname kafka.example.com --client alice
    """
    from odradek.broker.commands.tls import authority, usage

    made = authority.init(directory, list(dict.fromkeys(hostnames)), list(dict.fromkeys(clients)), days)
    click.echo("\n".join(map(str, made)))
    click.echo(usage.text(directory.absolute(), hostnames[0], clients[0]))


@command.command("renew")
@_DIRECTORY
@_DAYS
def renew(directory: Path, days: int) -> None:
    """Replace the certificates of the broker and its clients by new ones for the same names.

    A running broker takes its new certificate over within two seconds. Copy a client's file to where it is used.

    \b
    Example:
      odradek tls renew --directory /etc/odradek/tls
    """
    from odradek.broker.commands.tls import authority, usage

    click.echo("\n".join(map(str, authority.renew(directory, days))))
    hostname, client = authority.names(directory)
    click.echo(usage.text(directory.absolute(), hostname, client))
