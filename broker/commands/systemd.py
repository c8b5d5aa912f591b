"""`odradek systemd`: a broker as systemd units, one for each process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click


@click.group(no_args_is_help=True)
def command() -> None:
    """Run a broker under systemd: one unit for each process, and sockets that stay open when processes restart.

    \b
    Example:
      odradek systemd install && systemctl enable --now odradek.target
    """


@command.command()
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files below this directory instead of /.",
)
@click.option("--user", default="odradek", show_default=True, help="The system user that the processes run as.")
def install(prefix: Path | None, user: str) -> None:
    """Write the units for this interpreter, and create the user and directories that they need.

    Reads /etc/odradek/server.properties, and creates it if it is missing. Another install replaces the units; put
    your own changes into drop-ins (`systemctl edit odradek-worker@`).
    """
    from odradek.broker.supervisor import systemd_units

    root = prefix or Path("/")
    for path in systemd_units.install(root, user):
        click.echo(path)
    for warning in systemd_units.warnings(root, user):
        click.echo(f"odradek: warning: {warning}", err=True)
    if prefix is None:
        _settle_in()


def _settle_in() -> None:
    """Create the user and the directories now, as the next boot would, and make a running systemd load the units."""
    for words in (["systemd-sysusers"], ["systemd-tmpfiles", "--create", "odradek.conf"]):
        if shutil.which(words[0]):
            subprocess.run(words, check=False)
    if os.path.isdir("/run/systemd/system"):  # sd_booted(3)
        subprocess.run(["systemctl", "daemon-reload"], check=False)


@command.command()
@click.argument("properties", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The broker's run directory."
)
def prepare(properties: Path, run_dir: Path) -> None:
    """For odradek-memory.service: create the shared memory and sockets of the processes.

    In a cluster this command waits until ZooKeeper answers."""
    from odradek.broker import config as configuration
    from odradek.broker import logs
    from odradek.broker.supervisor import boot

    config = configuration.load(properties, [f"odradek.run.dir={run_dir}"])
    logs.setup("memory", config)
    config.warn()
    if not config.clustered:
        boot.prepare(config, listen=False)
        return
    from odradek.broker.supervisor.await_zookeeper import ZooKeeperWait

    boot.prepare(config, listen=False, away=ZooKeeperWait(config).away)


@command.command()
@click.option(
    "--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The broker's run directory."
)
def leave(run_dir: Path) -> None:
    """For odradek-cluster.service: move leadership to other brokers while this one still serves."""
    from odradek.broker import config as configuration
    from odradek.broker.process.process import role_locks
    from odradek.broker.supervisor import stop_limits
    from odradek.broker.supervisor.await_leave import LeaveWait
    from odradek.ipc import rundir
    from odradek.ipc.shm import Shared

    config = configuration.saved(run_dir)
    shared, timeout_s = Shared.attach(rundir.shm_prefix(config.data_dir)), stop_limits.departure_s(config)
    if not LeaveWait(shared, role_locks(config), run_dir, timeout_s).wait():
        click.echo("odradek: warning: the controller did not move all leadership away from this broker", err=True)


@command.command()
@click.option(
    "--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The broker's run directory."
)
def finish(run_dir: Path) -> None:
    """For odradek-memory.service: flush, mark the clean shutdown, and release the shared memory."""
    from odradek.broker import config as configuration
    from odradek.broker import logs
    from odradek.broker.process.start_timeout import TimeoutExtension
    from odradek.broker.supervisor import boot, shutdown

    config = configuration.saved(run_dir)
    logs.setup("memory", config, run_dir)
    TimeoutExtension().begin(lambda: "flushing")
    booted = boot.again(config)
    shutdown.finish(booted)
    booted.leave()
