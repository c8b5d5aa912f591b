"""`odradek status`: shows a broker's processes, partitions and rates, its whole cluster, or all brokers here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.broker.commands._shared.broker import configured, find_running
from odradek.broker.commands._shared.options import ClientCommand, flag, load_properties

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig


@click.command("status", cls=ClientCommand, no_args_is_help=False)
@configured
@flag("--all", "Show all brokers of this user on this machine, living and dead, and their shared memory.")
@flag("--cluster", "Show all brokers of the cluster, and its faults.")
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="With --cluster: bootstrap brokers, on any machine.")
@click.option("--command-config", metavar="FILE", help="With --cluster: properties file with client configurations.")
@click.option(
    "--zk-tls-config-file",
    metavar="FILE",
    help="With --cluster: the zookeeper.ssl.… and odradek.zookeeper.… of this properties file secure the connection to "
    "ZooKeeper. Default: those of the broker on this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch one per line.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval", default=1.0, show_default=True, metavar="SECONDS", help="Time between updates with --watch."
)
def command(
    properties: Path | None, override: tuple[str, ...], all: bool, cluster: bool, as_json: bool, watch: bool,
    interval: float, **of_cluster: str | None,
) -> None:  # fmt: skip
    """Show the processes, partitions and rates of a running broker, or all brokers of its cluster.

    Finds the broker by the log.dirs of SERVER.PROPERTIES or --override; without either it is the broker on ./data,
    or else the only running broker. Exit code 0 if the broker serves clients, otherwise 1; with --cluster 0 if there is
    no fault, otherwise 1; with --all 0 if a broker is running, otherwise 1.

    \b
    Example:
      odradek status --watch
      odradek status --json | jq '.partitions[] | select(.state != "leader")'
      odradek status --cluster --bootstrap-server localhost:9092
      odradek status --all
    """
    if all and (cluster or properties or override):
        raise click.UsageError("--all needs no SERVER.PROPERTIES, --override or --cluster")
    if not cluster and (given := [name for name, value in of_cluster.items() if value]):
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --cluster")
    show = _Show(as_json, watch, interval)
    if all:
        well = _all(show)
    else:
        well = _cluster(properties, override, of_cluster, show) if cluster else _broker(properties, override, show)
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


def _all(show: _Show) -> bool:
    """Show all brokers of this user; returns whether one is running."""
    from odradek.broker.commands.status import all_brokers

    def look() -> tuple[bool, Callable[[], str], Callable[[], object]]:
        seen = all_brokers.look()
        return seen.running, lambda: all_brokers.render(seen), seen.as_json

    return show.until_enough(look)


def _cluster(
    properties: Path | None, override: tuple[str, ...], options: Mapping[str, str | None], show: _Show
) -> bool:
    """Show the cluster from its brokers' responses; returns whether it has no faults."""
    from odradek.broker.commands.status import ask_brokers
    from odradek.broker.commands.status.overview import render

    here = None if options["bootstrap_server"] else find_running(properties, override)
    client = load_properties(options["command_config"])
    zookeeper = _zookeeper_credentials(here, options["zk_tls_config_file"])
    with ask_brokers.connect(options["bootstrap_server"] or _address(here, client), client) as cluster:

        def look() -> tuple[bool, Callable[[], str], Callable[[], object]]:
            seen = ask_brokers.collect(cluster, zookeeper)
            return not seen.wrong, lambda: render(seen), seen.as_json

        return show.until_enough(look)


def _address(here: BrokerConfig | None, client: Mapping[str, str]) -> str:
    """The advertised address of the broker here for this client: with its security.protocol, or else the first one."""
    from odradek.broker.listeners import bracket

    assert here is not None
    protocol = client.get("security.protocol", "PLAINTEXT").strip().upper()
    fitting = (one for one in here.advertised if here.protocols[one.name] == protocol)
    endpoint = next(fitting, here.advertised[0])
    return f"{bracket(endpoint.host)}:{endpoint.port}"


def _zookeeper_credentials(here: BrokerConfig | None, config_file: str | None) -> dict[str, Any]:
    """For ZooKeeper: of the file, or else of the broker here. Raises OdradekError."""
    from odradek.broker.commands._shared import zookeeper
    from odradek.broker.errors import OdradekError

    try:
        if config_file:
            return zookeeper.credentials(zookeeper.settings(config_file))
        return zookeeper.credentials(here) if here is not None and here.clustered else {}
    except ValueError as error:
        raise OdradekError(str(error)) from None
