"""`odradek scale`: changes the number of workers in a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.broker.commands._shared.broker import configured
from odradek.ipc.roles import MAX_WORKERS

if TYPE_CHECKING:
    from odradek.ipc.shm import Shared


@click.command(no_args_is_help=True)
@configured
@click.option("--workers", type=click.IntRange(1, MAX_WORKERS), required=True, help="Number of workers.")
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for the change.")
def command(properties: Path | None, override: tuple[str, ...], workers: int, timeout: float) -> None:
    """Change the number of workers of a running broker; returns when the change is complete.

    A retired worker answers its pending requests and closes its connections only between requests; connections of
    other workers are not affected. The next start uses odradek.workers again.

    \b
    Example:
      odradek scale --workers 4
    """
    from odradek.broker.commands._shared import broker
    from odradek.broker.errors import OdradekError
    from odradek.broker.process import control_bus, process
    from odradek.ipc import rundir
    from odradek.ipc.shm import Shared

    config = broker.find_running(properties, override)
    control_bus.request(config.run_dir, "supervisor", "scale", workers=workers)
    shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    if not process.wait_for(lambda: _are(shared, workers), timeout, 0.05):
        raise OdradekError(f"{workers} workers did not start within {timeout:g} s; see odradek status")
    click.echo(f"{workers} workers")


def _are(shared: Shared, workers: int) -> bool:
    from odradek.ipc import processes, roles

    table = shared.processes
    states = [table.get(role, "state") for role in range(roles.FIRST_WORKER, roles.ROLES)]
    goal = [processes.RUNNING] * workers
    return states[:workers] == goal and not any(states[workers:])
