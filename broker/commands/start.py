"""`odradek start`: a whole broker in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from odradek.broker.commands._broker import configured


@click.command()
@configured
def command(properties: Path | None, override: tuple[str, ...]) -> None:
    """Start a broker and stay with it until Ctrl-C or `odradek stop`.

    SERVER.PROPERTIES is a Kafka broker's configuration file. Without it the broker listens on 127.0.0.1:9092 and
    keeps its data in ./data. Exit code 3 means that it cannot start as it is configured.

    \b
    Example:
      odradek start
      odradek start server.properties --override log.dirs=/tmp/try --override odradek.workers=4
    """
    from odradek.broker import boot, logs, shutdown
    from odradek.broker import config as configuration
    from odradek.broker.supervisor import Supervisor

    config = configuration.load(properties, override)
    logs.setup("supervisor", config)
    for line in config.warnings:
        click.echo(f"odradek: warning: {line}", err=True)
    booted = boot.prepare(config)
    logs.setup("supervisor", booted.config, booted.run_dir)
    sys.exit(Supervisor(booted, shutdown.finish).run())
