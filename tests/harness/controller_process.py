"""A broker's controller process as workers see it: its publications, and its answers to forwarded requests."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from odradek.cluster.metadata.security_metadata import SecurityMetadata
from odradek.ipc import channel, forward
from odradek.ipc.forward import Forwarded
from odradek.ipc.rundir import run_dir, shm_prefix
from odradek.ipc.shm import Shared
from odradek.protocol import requests
from odradek.protocol.library import message_class
from odradek.protocol.responses import encoded

from .broker import Broker

SECONDS = 30


def published(broker: Broker) -> SecurityMetadata:
    """The security metadata that the workers read."""
    shared = Shared.attach(shm_prefix(broker.data_dir))
    return SecurityMetadata.parse(*shared.security.read())


def catalog(broker: Broker) -> Any:
    """The part of a worker's catalog that `workers.dispatch.credentials` needs."""
    return SimpleNamespace(security=published(broker))


class ControllerProcess:
    """A connection to the controller process, as if a worker had authenticated `principal` on `listener`."""

    def __init__(self, broker: Broker, principal: str, listener: str = "SASL", by_token: bool = False) -> None:
        self._principal, self._listener, self._by_token = principal, listener, by_token
        self._link = channel.connect(run_dir(broker.data_dir) / "controller.sock")

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """The response to one request."""
        kind = message_class(f"{name}Request")
        body = encoded(kind(**fields), version)
        request = Forwarded(
            1, kind.API_KEY, version, "test", "127.0.0.1", self._listener, body, self._principal, self._by_token
        )
        self._link.send(forward.encode(request))
        _, flags, answer = forward.decode_reply(self._reply())
        assert flags == forward.OK, flags
        return requests.decode(message_class(f"{name}Response"), version, memoryview(answer))

    def _reply(self) -> bytes:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for message in self._link.receive():
                return message
            time.sleep(0.002)
        raise AssertionError("the controller process does not answer")

    def close(self) -> None:
        self._link.close()
