"""Shared by commands for a local broker: options for its configuration, and the search for a running broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig, InvalidConfig
from odradek.broker.errors import NotRunning
from odradek.broker.process import process
from odradek.ipc import roles, rundir

F = TypeVar("F", bound=Callable[..., Any])


def configured(function: F) -> F:
    """Add the argument SERVER.PROPERTIES and the option --override, as in Kafka's kafka-server-start.sh."""
    argument = click.argument("properties", required=False, type=click.Path(path_type=Path, dir_okay=False))
    option = click.option(
        "--override",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one setting; may be repeated.",
    )
    return argument(option(function))


def find_running(properties: Path | None, override: tuple[str, ...]) -> BrokerConfig:
    """The configuration of the running broker that the arguments name. Raises NotRunning.

    Without arguments it is the broker on ./data, or else the only one that this user runs."""
    config = configuration.load(properties, override)
    found = _running(config.run_dir) or _elsewhere(config.data_dir)
    if found is None and properties is None and not override:
        others = [other for other in map(_running, rundir.run_dirs()) if other is not None]
        found = others[0] if len(others) == 1 else None
        if len(others) > 1:
            choices = ", ".join(other.data_dir for other in others)
            raise NotRunning(f"several brokers are running; select one with --override log.dirs=…: {choices}")
    if found is None:
        raise NotRunning(f"no broker is running on {config.data_dir}")
    return found


def is_running(config: BrokerConfig) -> bool:
    """Whether this broker, which was found running, still has a supervisor."""
    return _running(config.run_dir) is not None


def _running(run_dir: Path) -> BrokerConfig | None:
    """The configuration of the broker with this run directory; None when it has no supervisor."""
    try:
        config = configuration.saved(run_dir)
        locks = process.role_locks(config, create=False)
    except (InvalidConfig, OSError):
        return None
    try:
        return config if locks.alive(roles.SUPERVISOR) else None
    finally:
        locks.close()


def _elsewhere(data_dir: str) -> BrokerConfig | None:
    """The broker on `data_dir` when its run directory differs from this shell's default."""
    found = (_running(folder) for folder in rundir.run_dirs())
    return next((one for one in found if one is not None and one.data_dir == data_dir), None)
