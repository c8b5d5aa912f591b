"""`odradek start`: runs a whole broker in the foreground."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from odradek.broker.commands._shared.broker import configured

if TYPE_CHECKING:
    from odradek.broker.supervisor.boot import Boot


@click.command()
@configured
def command(properties: Path | None, override: tuple[str, ...]) -> None:
    """Start a broker and run it in the foreground until Ctrl-C or `odradek stop`.

    SERVER.PROPERTIES is a Kafka broker's configuration file. Without it the broker listens on 127.0.0.1:9092 and
    keeps its data in ./data. Exit code 3 means that the broker cannot start with this configuration.

    \b
    Example:
      odradek start
      odradek start server.properties --override log.dirs=/tmp/try --override odradek.workers=4
    """
    from odradek.broker.supervisor.forkserver_client import ForkserverClient

    _fill_standard()
    forkserver = ForkserverClient.open()  # before all else: its forks must not inherit later state

    from odradek.broker import config as configuration
    from odradek.broker import logs
    from odradek.broker.process import process, secrets_in_memory
    from odradek.broker.supervisor import boot
    from odradek.broker.supervisor.supervisor import Supervisor

    try:
        config = configuration.load(properties, override)
        logs.setup("supervisor", config)
        config.warn()
        secrets_in_memory.protect(config)
        booted = boot.prepare(config, hold=process.hold_stop_signals)
        logs.setup("supervisor", booted.config, booted.run_dir)
        code = Supervisor(booted, _last_steps, forkserver, forkserver.check).run()
    finally:
        forkserver.close()
    _end(code)


def _fill_standard() -> None:
    """Open /dev/null as descriptor 0, 1 or 2 if it is closed, so that no file or socket gets its number and output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _end(code: int) -> NoReturn:
    """Exit at once: without waiting for library threads or exit handlers, and before a signal changes the exit code."""
    from odradek.broker import logs

    logs.end()
    os._exit(code)


def _last_steps() -> Callable[[Boot], None]:
    """Import while the broker is already serving, and not at its stop, when the code may have been replaced."""
    from odradek.broker.supervisor import shutdown

    return shutdown.finish
