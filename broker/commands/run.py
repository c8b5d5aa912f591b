"""`odradek run ROLE`: runs one process of a broker; the supervisor starts it, or a systemd unit."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.broker.process.entry import MODULES
from odradek.ipc.roles import BY_NAME, MAX_WORKERS, worker_role


@click.command(no_args_is_help=True)
@click.argument("role", type=click.Choice(sorted(MODULES)))
@click.option("--id", "number", type=click.IntRange(0, MAX_WORKERS - 1), help="The worker's number.")
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="The broker's run directory.")
@click.option(
    "--override",
    multiple=True,
    metavar="KEY=VALUE",
    help="Without --run-dir: a setting of the broker to find, such as log.dirs.",
)
def command(role: str, number: int | None, run_dir: Path | None, override: tuple[str, ...]) -> None:
    """Run one process of a started broker, until SIGTERM.

    The broker is the one of --run-dir; without it, `odradek run` finds the broker as `odradek status` does.

    \b
    Example:
      odradek run worker --id 3
    """
    from odradek.broker.commands._shared import broker
    from odradek.broker.process import entry
    from odradek.broker.supervisor import spawn

    spawn.die_with_parent()
    if (role == "worker") != (number is not None):
        raise click.UsageError("--id is required for a worker and not allowed for other processes")
    run_dir = run_dir or broker.find_running(None, override).run_dir
    entry.serve(BY_NAME[role] if number is None else worker_role(number), run_dir)
