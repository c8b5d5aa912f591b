"""`odradek start`: runs a whole broker in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.broker.commands._shared.broker import configured


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
    from odradek.broker import config
    from odradek.broker.supervisor import foreground

    foreground.end(foreground.run(lambda: config.load(properties, override)))
