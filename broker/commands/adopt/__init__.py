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
@flag("--dry-run", "Print what the first start on DIR would take over, and what is unknown. Changes nothing.")
@click.option(
    "--config",
    metavar="SERVER.PROPERTIES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --dry-run: the configuration of the first start, for its metadata.log.dir and, without DIR, its "
    "log.dirs.",
)
@json_option
@flag("--defaults", "In a running broker: apply the broker's defaults to topics whose retention is unknown.")
@click.option("--topic", multiple=True, metavar="NAME", help="With --defaults: only this topic; may be repeated.")
@connection_options(required=False)
def command(**options: Any) -> None:
    """Take over the log directories of another Kafka broker.

    The first `odradek start` with these directories as log.dirs adopts them. It reads topics, ids and configs from
    KRaft's metadata log. The directories of a ZooKeeper-mode broker have no such log: all their records are kept, and
    the topics have retention.ms=-1, retention.bytes=-1, cleanup.policy=delete and odradek.retention.unknown=true until
    `odradek configs --alter` names one of these configs, or `odradek adopt --defaults` deletes them.

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
        raise click.UsageError("give DIR and --dry-run, or --defaults; to take DIR over, run `odradek start` on it")
    if options["dry_run"] and not (options["directories"] or options["config"]):
        raise click.UsageError("--dry-run needs the log directories, or --config")
    if options["dry_run"] and (options["topic"] or options["bootstrap_server"]):
        raise click.UsageError("--topic and --bootstrap-server need --defaults")
    if options["defaults"] and (options["directories"] or options["config"] or options["as_json"]):
        raise click.UsageError("DIR, --config and --json need --dry-run")
    if options["defaults"] and not options["bootstrap_server"]:
        raise click.UsageError("--defaults needs --bootstrap-server")
