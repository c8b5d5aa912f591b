"""`odradek zookeeper-server-stop`: stops a ZooKeeper server on this machine, as Kafka's script of that name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.broker.commands.zookeeper_server_start import MAIN
from odradek.broker.errors import OdradekError

if TYPE_CHECKING:
    import psutil


@click.command()
@click.argument("properties", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--timeout", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for the server to stop."
)
def command(properties: Path | None, timeout: float) -> None:
    """Stop the ZooKeeper server that was started with ZOOKEEPER.PROPERTIES, or else the only running one.

    \b
    Example:
      odradek zookeeper-server-stop config/zookeeper.properties
    """
    import psutil

    from odradek.broker.process.process import wait_for

    found = [one for one in psutil.process_iter() if _is_meant(one, properties)]
    if not found:
        raise OdradekError("no ZooKeeper server is running" + (f" with {properties}" if properties else ""))
    if len(found) > 1:
        files = ", ".join(sorted(str(_file(one)) for one in found))
        raise OdradekError(f"several ZooKeeper servers are running; give the properties file of one: {files}")
    found[0].terminate()
    if not wait_for(lambda: _has_ended(found[0]), timeout, 0.05):
        raise OdradekError(f"the ZooKeeper server did not stop within {timeout:g} s: pid {found[0].pid}")


def _is_meant(process: psutil.Process, properties: Path | None) -> bool:
    """Whether `process` is a ZooKeeper server of this user (for root: of any user) with that file."""
    import psutil

    try:
        if MAIN not in process.cmdline() or os.getuid() not in (0, process.uids().real):
            return False
        return properties is None or _file(process) == properties.resolve()
    except psutil.Error:  # gone, or owned by another user
        return False


def _file(process: psutil.Process) -> Path:
    """The server's configuration file."""
    return Path(process.cwd(), process.cmdline()[-1]).resolve()


def _has_ended(process: psutil.Process) -> bool:
    """Whether the process has ended, even if its parent has not collected the exit code yet."""
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
