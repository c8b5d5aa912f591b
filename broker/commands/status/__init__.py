"""`odradek status`: shows a running broker's processes, partitions and rates, or its whole cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import click

from odradek.broker.commands._shared.broker import configured, find_running
from odradek.broker.commands._shared.options import ClientCommand, flag


@click.command("status", cls=ClientCommand, no_args_is_help=False)
@configured
@flag("--cluster", "Show all brokers of the cluster, and its faults.")
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="With --cluster: bootstrap brokers, on any machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch one per line.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval", default=1.0, show_default=True, metavar="SECONDS", help="Time between updates with --watch."
)
def command(
    properties: Path | None, override: tuple[str, ...], cluster: bool, bootstrap_server: str | None, as_json: bool,
    watch: bool, interval: float,
) -> None:  # fmt: skip
    """Show the processes, partitions and rates of a running broker, or all brokers of its cluster.

    Finds the broker by the log.dirs of SERVER.PROPERTIES or --override; without either it is the broker on ./data,
    or else the only running broker. Exit code 0 if the broker serves clients, otherwise 1; with --cluster 0 if there is
    no fault, otherwise 1.

    \b
    Example:
      odradek status --watch
      odradek status --json | jq '.partitions[] | select(.state != "leader")'
      odradek status --cluster --bootstrap-server localhost:9092
    """
    if bootstrap_server and not cluster:
        raise click.UsageError("--bootstrap-server needs --cluster")
    show = _Show(as_json, watch, interval)
    well = _cluster(properties, override, bootstrap_server, show) if cluster else _broker(properties, override, show)
    if not well:
        from odradek.broker.errors import FAILED

        raise SystemExit(FAILED)


class _Show:
    """Prints once, or repeatedly."""

    def __init__(self, as_json: bool, watch: bool, interval: float) -> None:
        self.as_json, self.watch, self.interval = as_json, watch, interval

    def until_enough(self, look: Callable[[], tuple[bool, Callable[[], str], Callable[[], object]]]) -> bool:
        """`look` returns whether all is well, and functions for text and JSON; this method returns the former."""
        while True:
            well, text, document = look()
            if self.watch and not self.as_json:
                click.clear()
            click.echo(json.dumps(document()) if self.as_json else text())
            if not self.watch:
                return well
            time.sleep(self.interval)


def _broker(properties: Path | None, override: tuple[str, ...], show: _Show) -> bool:
    """Show one broker from its shared memory; returns whether it serves clients."""
    from odradek.broker.errors import NotRunning
    from odradek.broker.process.status import Observer, RegionError, Sample, render

    config = find_running(properties, override)
    try:
        observer = Observer(config)
    except (RegionError, OSError) as error:  # the broker is stopping
        raise NotRunning(str(error)) from None
    last: Sample | None = None
    if not show.as_json and not show.watch:
        last = observer.sample()
        time.sleep(min(show.interval, 0.25))  # rates need a second sample

    def look() -> tuple[bool, Callable[[], str], Callable[[], object]]:
        nonlocal last
        last = sample = observer.sample(last)
        return sample.ready, lambda: render(sample), sample.as_json

    return show.until_enough(look)


def _cluster(properties: Path | None, override: tuple[str, ...], bootstrap: str | None, show: _Show) -> bool:
    """Show the cluster from its brokers' responses; returns whether it has no faults."""
    from odradek.broker.commands.status import ask_brokers
    from odradek.broker.commands.status.overview import render

    with ask_brokers.connect(bootstrap or _own_address(properties, override)) as cluster:

        def look() -> tuple[bool, Callable[[], str], Callable[[], object]]:
            seen = ask_brokers.collect(cluster)
            return not seen.wrong, lambda: render(seen), seen.as_json

        return show.until_enough(look)


def _own_address(properties: Path | None, override: tuple[str, ...]) -> str:
    """The advertised address of the broker that runs here. Raises NotRunning."""
    from odradek.broker.listeners import bracket

    endpoint = find_running(properties, override).advertised[0]
    return f"{bracket(endpoint.host)}:{endpoint.port}"
