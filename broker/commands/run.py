"""`odradek run ROLE`: one process of a broker; what the supervisor spawns, and systemd units may."""

from __future__ import annotations

import gc
import importlib
import os
from pathlib import Path

import click
from odradek.ipc.roles import MAX_WORKERS

MODULES = {
    "acceptor": "odradek.broker.acceptor",
    "controller": "odradek.broker.controller",
    "coordinator": "odradek.broker.coordinator",
    "janitor": "odradek.broker.janitor",
    "worker": "odradek.broker.worker",
}


@click.command(no_args_is_help=True)
@click.argument("role", type=click.Choice(sorted(MODULES)))
@click.option("--id", "number", type=click.IntRange(0, MAX_WORKERS - 1), help="The worker's number.")
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="The broker's run directory.")
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="To find the broker, without --run-dir.")
def command(role: str, number: int | None, run_dir: Path | None, override: tuple[str, ...]) -> None:
    """Run one process of a broker that has been started; ends with SIGTERM.

    The broker is the one of --run-dir, or found as `odradek status` finds it.

    \b
    Example:
      odradek run worker --id 3
    """
    from odradek.broker import config as configuration
    from odradek.broker import logs, spawn
    from odradek.broker.commands import _broker

    spawn.die_with_parent()
    if (role == "worker") != (number is not None):
        raise click.UsageError("a worker needs --id, and only a worker has one")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    run_dir = run_dir or _broker.find_running(None, override).run_dir
    name = role if number is None else f"{role}-{number}"
    logs.setup(name, configuration.saved(run_dir), run_dir)
    module = importlib.import_module(MODULES[role])
    gc.freeze()  # what is loaded now lives for ever: no collection need look at it again
    if number is None:
        module.main(run_dir)
    else:
        module.main(run_dir, number)
