"""The listeners of this broker, as its dynamic configs say, while it runs.

State     : the configuration with the listeners that are in force, in the memory of the controller process.
Owner     : the controller process; the supervisor owns the sockets (broker.supervisor.listening_sockets).
Change    : 1. the supervisor binds the new ports, or says why it cannot; they listen, and no process accepts there;
            2. the tree gets the dynamic configs;
            3. the registration gets the advertised listeners, the snapshot all of them with their protocols;
            4. when every worker has the snapshot, the supervisor saves config.json, closes the ports of removed
               listeners and starts another acceptor, which accepts on the new ones. Existing connections of removed
               listeners are closed by the workers (workers.listeners).
            A change that another program writes into the tree begins with 2; then comes 1.
Crash rule: the tree decides. If this process dies before 2, nothing has changed, and the supervisor closes the ports
            after a while. If it dies later, its successor reads the tree and does 3 and 4. If the supervisor dies, all
            processes do; a start reads the tree before it binds (broker.supervisor.boot). If the acceptor dies, the
            next one gets the sockets that the supervisor has, and config.json, which is written first.
No worker knows a listener by another protocol than the acceptor's clients: they are accepted after 4 only, and a worker
reads the snapshot before it handles anything else. A connection of a listener that it does not know is closed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker import listeners
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.listeners import ListenerError
from odradek.cluster.configs.configdef import LISTENERS

log = logging.getLogger(__name__)

PREPARE, LISTEN = "prepare-listeners", "listen"  # commands of the supervisor's control bus
_ANSWER_MS = 2000  # the supervisor answers in a turn
_RETRY_S = 1.0


class DynamicListeners:
    """The listeners in force; `config` has them."""

    def __init__(self, run_dir: Path, config: BrokerConfig) -> None:
        self.config = config
        self._run_dir = run_dir
        self._seen = None if _missing(config) else dict(config.dynamic)
        self._number = self._acked = self._applied = 0  # changes that are in force, known to workers, bound
        self._retry_at = 0.0
        self._problem = ""

    def changed(self, own: Mapping[str, str]) -> BrokerConfig:
        """The configuration with the listeners of `own`, the dynamic configs of this broker. ListenerError."""
        config = self.config.with_dynamic(own)
        listeners.check_change(self.config.listeners, self.config.protocols, config.listeners, config.protocols)
        return config

    def prepare(self, config: BrokerConfig, keep: bool) -> None:
        """Have the supervisor bind the new ports of `config`; without `keep`, only try it. Raises ListenerError."""
        try:
            self._command(PREPARE, config, keep=keep)
        except OdradekError as error:
            raise ListenerError(str(error)) from None

    def follow(self, own: Mapping[str, str], now: float) -> bool:
        """Put the listeners of `own` into force, before they are published; whether they differ.

        While a port cannot be bound, the former listeners stay in force, and the change is retried.
        """
        dynamic = {key: own[key] for key in LISTENERS if key in own}
        if dynamic == self._seen or now < self._retry_at:
            return False
        try:
            config = self.changed(own)
            config = config.with_ports(self._command(PREPARE, config, keep=True)["ports"])
        except ListenerError as error:
            log.error("listeners: the dynamic config is invalid, and the former listeners stay in force: %s", error)
            self._seen = dynamic
        except OdradekError as error:
            self._failed(error, now)
        else:
            self._seen, self.config, self._problem = dynamic, config, ""
            self._number += 1
            log.info("listeners: %s", ", ".join(map(str, config.listeners)))
            return True
        return False

    def due(self, now: float) -> float:
        """When `follow` or `apply` have something to do again (monotonic seconds)."""
        return self._retry_at if self._outstanding or self._retry_at > now else math.inf

    @property
    def number(self) -> int:
        """Of the last change that is in force."""
        return self._number

    def acked(self, number: int) -> None:
        """All workers have a snapshot with that change."""
        self._acked = number
        self.apply(time.monotonic())

    @property
    def _outstanding(self) -> bool:
        return self._applied != self._number == self._acked

    def apply(self, now: float) -> None:
        """Have the supervisor listen as every worker knows; it is tried again while it cannot."""
        if not self._outstanding or now < self._retry_at:
            return
        try:
            self._command(LISTEN, self.config)
        except OdradekError as error:
            self._failed(error, now)
        else:
            self._applied, self._problem = self._number, ""

    def _failed(self, error: OdradekError, now: float) -> None:
        if str(error) != self._problem:
            log.error("cannot change the listeners, retrying: %s", error)
        self._problem, self._retry_at = str(error), now + _RETRY_S

    def _command(self, name: str, config: BrokerConfig, **arguments: Any) -> dict[str, Any]:
        from odradek.broker.process import control_bus  # with ZeroMQ, which a controller seldom needs

        dynamic = dict(config.dynamic)
        return control_bus.request(self._run_dir, "supervisor", name, _ANSWER_MS, dynamic=dynamic, **arguments)


def _missing(config: BrokerConfig) -> bool:
    """Whether the start could not listen everywhere (broker.supervisor.boot)."""
    wanted = config.with_dynamic(config.dynamic).listeners
    return {endpoint.name for endpoint in wanted} != {endpoint.name for endpoint in config.listeners}
