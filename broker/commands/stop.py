"""`odradek stop`: drains and stops a running broker."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.broker.commands._shared.broker import configured

_DISK_S = 60.0  # for the final sync of the logs


@click.command()
@configured
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="How long to wait for the broker to stop (default: as long as a clean shutdown may take).",
)
def command(properties: Path | None, override: tuple[str, ...], timeout: float | None) -> None:
    """Stop a broker: answer pending requests, flush, mark a clean shutdown; returns when the broker has ended.

    Finds the broker by the log.dirs of SERVER.PROPERTIES or --override; without either it is the broker on ./data,
    or else the only running broker.

    \b
    Example:
      odradek stop
      odradek stop --override log.dirs=/var/lib/odradek
    """
    from odradek.broker.commands._shared import broker
    from odradek.broker.errors import OdradekError
    from odradek.broker.process import control_bus, process
    from odradek.broker.supervisor import stop_limits
    from odradek.ipc import roles

    config = broker.find_running(properties, override)
    locks = process.role_locks(config)
    control_bus.request(config.run_dir, "supervisor", "stop")
    if timeout is None:
        timeout = stop_limits.whole_s(config) + _DISK_S
    if not process.wait_for(lambda: not locks.alive(roles.SUPERVISOR), timeout, 0.05):
        raise OdradekError(f"the broker on {config.data_dir} did not stop within {timeout:g} s; shutdown continues")
    click.echo(f"stopped the broker on {config.data_dir}")
