"""`odradek backup`: what the files of topics and their archives do not have, as one file, and back into a cluster.

It has topics with their configs, dynamic configs of brokers, quotas, SCRAM users, committed offsets and ACLs. Kafka's
requests read and write them, so it works with any Kafka cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    flag,
    json_option,
    load_properties,
)
from odradek.broker.commands._shared.zookeeper import check_config_file, zk_config_option
from odradek.broker.commands.backup.restore_options import KINDS, Recreated, RestoreOptions

if TYPE_CHECKING:
    from odradek.broker.commands._shared.client import Cluster
    from odradek.cluster.tree.tree import Tree


def _where(function: Any) -> Any:
    """FILE, the cluster, and its ZooKeeper for the credentials of users."""
    function = click.option(
        "--zookeeper",
        metavar="HOST:PORT,…/PATH",
        help="The cluster's ZooKeeper (zookeeper.connect), for the SCRAM credentials, which brokers do not return.",
    )(zk_config_option(function))
    function = click.option(
        "--timeout", "timeout_ms", type=click.IntRange(min=1), default=30_000, help="Milliseconds to wait for a broker."
    )(function)
    file = click.argument("file", type=click.Path(path_type=Path))
    return file(connection_options()(function))


@contextmanager
def _opened(where: dict[str, Any]) -> Iterator[tuple[Cluster, Tree | None]]:
    """The cluster, and the tree if it is given. OdradekError."""
    from odradek.broker.commands._shared import zookeeper
    from odradek.broker.commands._shared.client import Cluster

    check_config_file(where)
    properties = load_properties(where["command_config"])
    with Cluster(where["bootstrap_server"], properties, where["timeout_ms"]) as cluster:
        if where["zookeeper"]:
            with zookeeper.opened(where["zookeeper"], where["zk_tls_config_file"]) as tree:
                yield cluster, tree
        else:
            yield cluster, None


@click.group("backup")
def command() -> None:
    """Save topics, configs, quotas, users, committed offsets and ACLs of a cluster to a file, and restore them.

    The records of topics are not in it: see `odradek pipeline archive`.
    """


@command.command("create", cls=ClientCommand)
@_where
def create(file: Path, **where: Any) -> None:
    """Write a backup of the cluster to FILE, with mode 0600.

    What cannot be read is named, and the exit code is 1 then; FILE.incomplete has the rest, and FILE stays as it was.

    \b
    Example:
      odradek backup create --bootstrap-server localhost:9092 backup.json
    """
    from odradek.broker.commands.backup import backup_file, create_backup
    from odradek.broker.errors import OdradekError

    backup_file.check_writable(file)
    with _opened(where) as (cluster, tree):
        saved = create_backup.collect(cluster, tree)
    if saved.missing:
        file = backup_file.incomplete(file)
    backup_file.write(file, saved)
    for line in create_backup.left_out(saved):
        click.echo(f"left out: {line}")
    for line in saved.missing:
        click.echo(f"missing: {line}", err=True)
    click.echo(f"{file}: {create_backup.counts(saved)}")
    if saved.missing:
        raise OdradekError(f"{file} is not complete: {len(saved.missing)} could not be read, see above")


@command.command("restore", cls=ClientCommand)
@_where
@flag("--dry-run", "Only print what would be restored.")
@flag("--overwrite", "Also set values that differ; without it they are left alone. Nothing is deleted or lowered.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Restore only this kind; may be repeated.")
@click.option(
    "--replication-factor", "factor", type=click.IntRange(1, 32767), help="Of new topics, instead of the backup's."
)
@click.option(
    "--recreated-topics",
    "recreated",
    type=click.Choice([one.value for one in Recreated]),
    default="refuse",
    show_default=True,
    help="Offsets in topics that are not those of the backup, by their ids: not set; found by the time of the next "
    "record; or as in the backup, for a copy of its logs.",
)
@json_option
def restore(
    file: Path, dry_run: bool, overwrite: bool, only: tuple[str, ...], factor: int | None, recreated: str,
    as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Restore what FILE has and the cluster has not.

    \b
    Example:
      odradek backup restore --bootstrap-server localhost:9092 backup.json --dry-run
    """
    from odradek.broker.commands.backup import backup_file, restore_report
    from odradek.broker.commands.backup.restore_backup import Restore
    from odradek.broker.errors import OdradekError

    saved = backup_file.read(file)
    options = RestoreOptions(only or KINDS, overwrite, dry_run, factor, Recreated(recreated))
    with _opened(where) as (cluster, tree):
        restored = Restore(cluster, tree, saved, options).run()
        failed = restore_report.print_report(restored, dry_run=dry_run, as_json=as_json)
    if failed:
        raise OdradekError(f"{failed} not restored, see above")
