"""`odradek status`: a running broker's processes, partitions and rates."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from odradek.broker.commands._broker import configured


@click.command()
@configured
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (with --watch one a line).")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", default=1.0, show_default=True, metavar="SECONDS", help="Between two looks with --watch.")
def command(properties: Path | None, override: tuple[str, ...], as_json: bool, watch: bool, interval: float) -> None:
    """Show the processes, partitions and rates of a running broker.

    Finds the broker by the log.dirs of SERVER.PROPERTIES or --override; without either it is the one on ./data,
    or else the only one running. Exit code 0 when it serves clients, 1 when it does not or none runs.

    \b
    Example:
      odradek status --watch
      odradek status --json | jq '.partitions[] | select(.state != "leader")'
    """
    from odradek.broker.commands import _broker
    from odradek.broker.errors import FAILED, NotRunning
    from odradek.broker.status import Observer, RegionError, render

    config = _broker.find_running(properties, override)
    try:
        observer = Observer(config)
    except (RegionError, OSError) as error:  # it is just ending
        raise NotRunning(str(error)) from None
    sample = observer.sample()
    if not as_json and not watch:
        time.sleep(min(interval, 0.25))  # rates need a second look
        sample = observer.sample(sample)
    while True:
        click.echo(json.dumps(sample.as_json()) if as_json else render(sample))
        if not watch:
            break
        time.sleep(interval)
        sample = observer.sample(sample)
        if not as_json:
            click.clear()
    if not sample.ready:
        raise SystemExit(FAILED)
