"""`odradek zookeeper-shell`: reads and writes nodes of ZooKeeper, as Kafka's zookeeper-shell.sh."""

from __future__ import annotations

import click

from odradek.broker.commands._shared.options import ClientCommand
from odradek.broker.commands._shared.zookeeper import SESSION_MS

_TLS_FILE = ("-zk-tls-config-file", "--zk-tls-config-file")


@click.command(
    "zookeeper-shell",
    cls=ClientCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: odradek zookeeper-shell localhost:2181 ls /brokers/ids",
)
@click.option("-server", "server", metavar="HOST:PORT", help="As the first argument, as in ZooKeeper's own shell.")
@click.option(
    "-timeout", "session_ms", type=click.IntRange(min=1), default=SESSION_MS, metavar="MS", help="Of the session."
)
@click.option(
    *_TLS_FILE, "config_file", metavar="FILE",
    help="The zookeeper.ssl.… and odradek.zookeeper.… of this properties file secure the connection; it may also come "
    "behind HOST:PORT.",
)  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="HOST:PORT[/PATH] [COMMAND [ARGUMENTS]…]")
def command(server: str | None, session_ms: int, config_file: str | None, words: tuple[str, ...]) -> None:
    """Run one command, or those that standard input has, a line each, until quit.

    \b
    ls [-s] [-w] [-R] PATH                  children of a node
    get [-s] [-w] PATH                      data
    stat [-w] PATH                          counters and times
    create [-s] [-e] PATH [DATA] [ACL]      -s: with a sequence number, -e: ephemeral
    set [-s] [-v VERSION] PATH DATA
    delete [-v VERSION] PATH
    deleteall PATH                          a node and all below it
    getAcl [-s] PATH
    addauth SCHEME AUTH, history, close, quit

    The exit code is that of the last command: 0, 1, or 127 for an unknown one.
    """
    from odradek.broker.commands.zookeeper_shell.shell import Shell

    rest = list(words)
    host = server or (rest.pop(0) if rest else None)
    if rest and rest[0] in _TLS_FILE:
        config_file, rest = _file(rest), rest[2:]
    if not host:
        raise click.UsageError("give HOST:PORT of ZooKeeper")
    raise SystemExit(Shell(host, session_ms, config_file).run(rest))


def _file(words: list[str]) -> str:
    if len(words) < 2:
        raise click.UsageError(f"{words[0]} needs a FILE")
    return words[1]
