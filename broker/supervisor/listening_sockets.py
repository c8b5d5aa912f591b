"""The listening sockets of a running broker, and their change (broker.controller.dynamic_listeners).

State     : `Boot.listening` and `Boot.config`, by name of the listener; and prepared sockets, which listen for a change
            that is not in force yet.
Owner     : the supervisor. An acceptor gets copies when it is started; so the supervisor starts another one after a
            change, while clients wait in the backlog. An acceptor in the supervisor takes copies itself.
Crash rule: all of it ends with the supervisor, and so do the broker's other processes.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Iterable, Mapping

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.listeners import Endpoint, ListenerError
from odradek.broker.process import sockets
from odradek.broker.supervisor.boot import Boot

log = logging.getLogger(__name__)

PREPARED_S = 10.0  # a controller process that dies meanwhile must not keep ports from others

Sockets = dict[Endpoint, socket.socket]


class ListeningSockets:
    """Binds, keeps and closes listening sockets."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._prepared: Sockets = {}
        self._until = 0.0

    def prepare(self, dynamic: Mapping[str, str], keep: bool) -> dict[str, object]:
        """Bind what the listeners of these dynamic configs need in addition; without `keep`, close it again.

        Raises OdradekError, and leaves all as it was.
        """
        config = self._with(dynamic)
        opened = self._open(config)
        ports = _ports(self._passed_on(config) | self._prepared | opened)
        if keep:
            self._prepared |= opened
            self._until = time.monotonic() + PREPARED_S
        else:
            _close(opened.values())
        return {"ports": ports}

    def listen(self, dynamic: Mapping[str, str]) -> dict[str, object]:
        """Listen as these dynamic configs say. Raises OdradekError, and leaves all as it was."""
        config, former = self._with(dynamic), self._boot.listening
        self._prepared |= self._open(config)
        found = self._passed_on(config) | {
            end: self._prepared[end] for end in config.listeners if end in self._prepared
        }
        config = config.with_ports(_ports(found))
        self._save(config)
        for end in found:
            self._prepared.pop(end, None)
        self._boot.config, self._boot.listening = config, {end.name: sock for end, sock in found.items()}
        self.expire(math.inf)
        _close(sock for sock in former.values() if sock not in found.values())
        if self._boot.listening != former:
            log.info("listening on %s", ", ".join(map(str, config.listeners)))
        return {"ports": _ports(found)}

    def expire(self, now: float) -> None:
        """Close prepared sockets whose change has not come."""
        if self._prepared and now >= self._until:
            _close(self._prepared.values())
            self._prepared.clear()

    def _with(self, dynamic: Mapping[str, str]) -> BrokerConfig:
        if not self._boot.listening:
            raise OdradekError("the acceptor was started by hand, with sockets of its own: restart the broker")
        try:
            return self._boot.config.with_dynamic(dynamic)
        except ListenerError as error:
            raise OdradekError(str(error)) from None

    def _save(self, config: BrokerConfig) -> None:
        try:
            config.save(self._boot.run_dir)
        except OSError as error:
            raise OdradekError(f"{self._boot.run_dir}: {error.strerror}") from None

    def _passed_on(self, config: BrokerConfig) -> Sockets:
        """The sockets in use that listeners of `config` keep, or take over from a removed one at the same address."""
        names = {end.name for end in config.listeners}
        listening = self._boot.listening
        free = {end[1:]: listening[end.name] for end in self._boot.config.listeners if end.name not in names}
        known = {end: listening.get(end.name) or free.get(end[1:]) for end in config.listeners}
        return {end: sock for end, sock in known.items() if sock is not None}

    def _open(self, config: BrokerConfig) -> Sockets:
        """Sockets for the listeners that neither take over one nor have a prepared one."""
        passed_on = self._passed_on(config)
        new = [end for end in config.listeners if end not in passed_on and end not in self._prepared]
        opened = sockets.open_all(new, sockets.backlog(config), sockets.receive_buffer(config))
        return {end: opened[end.name] for end in new}


def _ports(found: Sockets) -> dict[str, int]:
    return sockets.bound_ports({end.name: sock for end, sock in found.items()})


def _close(found: Iterable[socket.socket]) -> None:
    for sock in list(found):
        sock.close()
