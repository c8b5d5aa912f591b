"""`odradek top`: a live view of a running broker in a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from odradek.broker.commands._shared.broker import configured, find_running

_UNUSABLE = ("", "dumb", "unknown")


@click.command("top")
@configured
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.2, 3600), metavar="SECONDS",
    help="Time between updates.",
)  # fmt: skip
def command(properties: Path | None, override: tuple[str, ...], interval: float) -> None:
    """Show what is wrong with a running broker, its processes, topics, partitions, groups and clients, live.

    Finds the broker as odradek status does. It reads shared memory, /proc and files, and sends no request.

    \b
    Example:
      odradek top server.properties
    """
    from odradek.broker.errors import NotRunning
    from odradek.ipc.region import RegionError

    config = find_running(properties, override)
    _require_terminal()
    from odradek.broker.commands.top import terminal
    from odradek.broker.commands.top.sampler import Sampler

    try:
        sampler = Sampler(config)
    except (RegionError, OSError) as error:  # the broker is stopping
        raise NotRunning(str(error)) from None
    terminal.show(sampler, interval)


def _require_terminal() -> None:
    from odradek.broker.errors import OdradekError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise OdradekError("odradek top needs a terminal; in scripts use odradek status --json")
    term = os.environ.get("TERM", "")
    if term in _UNUSABLE:
        raise OdradekError(f"TERM={term}: set TERM to the type of the terminal (xterm), or use odradek status --watch")
