"""`odradek adopt`: previews a take-over of log directories, and sets defaults for adopted topics without configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    flag,
    json_option,
    load_properties,
)


@click.command("adopt", cls=ClientCommand, epilog="Example: odradek adopt /var/lib/kafka/data --dry-run")
@click.argument("directories", nargs=-1, metavar="[DIR]…", type=click.Path(exists=True, file_okay=False))
@flag("--dry-run", "Print what a first start on DIR would take over, and what it cannot know. Changes nothing.")
@click.option(
    "--config",
    metavar="SERVER.PROPERTIES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --dry-run: what the first start will be configured with; gives metadata.log.dir, and log.dirs for DIR.",
)
@json_option
@flag("--defaults", "In a running broker: the broker's defaults count for topics whose retention is not known.")
@click.option("--topic", multiple=True, metavar="NAME", help="With --defaults: only this one; may be given again.")
@connection_options(required=False)
def command(**options: Any) -> None:
    """Take over the log directories of another Kafka broker.

    The first `odradek start` with them as log.dirs adopts them: topics, ids and configs come from the metadata log of
    KRaft. Where that is missing, as in a directory of a ZooKeeper-mode broker, all records stay: such topics have
    retention.ms=-1, retention.bytes=-1, cleanup.policy=delete and odradek.retention.unknown=true until
    `odradek configs --alter` names one of these, or `odradek adopt --defaults` unsets them.

    \b
    odradek adopt DIR… --dry-run [--config SERVER.PROPERTIES] [--json]
    odradek adopt --defaults [--topic NAME]… --bootstrap-server HOST:PORT
    """
    _check(options)
    from odradek.broker.commands.adopt import dry_run

    if options["dry_run"]:
        dry_run.dry_run(options["directories"], options["config"], as_json=options["as_json"])
        return
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.adopt import defaults

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        defaults.use_defaults(cluster, options["topic"])


def _check(options: dict[str, Any]) -> None:
    if options["dry_run"] == options["defaults"]:
        raise click.UsageError("give DIR --dry-run, or --defaults; the first `odradek start` on DIR takes it over")
    if options["dry_run"] and not (options["directories"] or options["config"]):
        raise click.UsageError("--dry-run needs the log directories, or --config")
    if options["dry_run"] and (options["topic"] or options["bootstrap_server"]):
        raise click.UsageError("--topic and --bootstrap-server go with --defaults")
    if options["defaults"] and (options["directories"] or options["config"] or options["as_json"]):
        raise click.UsageError("DIR, --config and --json go with --dry-run")
    if options["defaults"] and not options["bootstrap_server"]:
        raise click.UsageError("--defaults needs --bootstrap-server")
