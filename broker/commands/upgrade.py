"""`odradek upgrade`: replaces the processes of a running broker by ones of the installed code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.broker.commands._shared.broker import configured

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig

_LOOK_S = 0.1
_ANSWER_MS = 5000
_BEGIN_MS = 60_000  # a busy supervisor that answers later has begun all the same


@click.command()
@configured
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait for the end.")
def command(properties: Path | None, override: tuple[str, ...], timeout: float) -> None:
    """Replace the processes of a running broker by ones of the code that is installed now; returns when all are.

    Workers are replaced one by one. Each hands its connections to its successor between two requests, so that clients
    do not notice; connections with TLS are closed with the answer to a request. A new worker that does not start, or
    does not answer a first request, ends, and the old one serves on. Then the other processes are replaced, one by one,
    while requests wait for them; if a new one fails, the former code is started again. The supervisor is not replaced.
    Code that cannot be imported, or that has another layout of shared memory, replaces nothing. Under systemd run it as
    root: it restarts units, also the supervisor's, and cannot start former code again.

    \b
    Example:
      pip install --upgrade odradek && odradek upgrade
    """
    from odradek.broker.commands._shared import broker
    from odradek.broker.errors import OdradekError
    from odradek.broker.process import control_bus

    config = broker.find_running(properties, override)
    answer = control_bus.request(config.run_dir, "supervisor", "upgrade", _BEGIN_MS)
    error, what = _by_unit(config, answer) if answer.get("by_unit") else _by_supervisor(config, timeout)
    if error:
        raise OdradekError(f"the upgrade has ended: {error}; what was not replaced goes on as before")
    click.echo(f"all processes{what} run the installed code")


def _by_unit(config: BrokerConfig, answer: dict[str, Any]) -> tuple[str, str]:
    from odradek.broker.rolling import units

    return units.upgrade(config, answer["versions"]), ""


def _by_supervisor(config: BrokerConfig, timeout: float) -> tuple[str, str]:
    return _await_end(config, timeout)["error"], " but the supervisor"


def _await_end(config: BrokerConfig, timeout: float) -> dict[str, Any]:
    from odradek.broker.errors import OdradekError

    deadline, phase = time.monotonic() + timeout, ""
    while (state := _state(config)) is None or state["active"]:
        phase = phase if state is None else state["phase"]
        if time.monotonic() >= deadline:
            raise OdradekError(f"the upgrade has not ended within {timeout:g} s, and goes on: {phase}")
        time.sleep(_LOOK_S)
    return state


def _state(config: BrokerConfig) -> dict[str, Any] | None:
    """What the supervisor says of the upgrade; None while a busy machine delays its answer. Raises NotRunning."""
    from odradek.broker.commands._shared import broker
    from odradek.broker.errors import NotRunning
    from odradek.broker.process import control_bus

    try:
        return control_bus.request(config.run_dir, "supervisor", "upgrade-state", _ANSWER_MS)
    except control_bus.ControlTimeout:
        if not broker.is_running(config):
            raise NotRunning("the broker has ended during the upgrade; its log says why") from None
        return None
