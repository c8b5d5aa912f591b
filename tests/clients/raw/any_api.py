"""Requests of any API by its name, as `kafka.protocol` encodes them."""

from __future__ import annotations

from typing import Any

from odradek.protocol import interbroker

from ...harness.process import wait_until
from ...harness.wire import Wire


def request(api: str, version: int, **fields: Any) -> Any:
    """The request of an API by its fields; those left out have their defaults."""
    return interbroker.message_class(api + "Request")[version](**fields)


def find_coordinator(wire: Wire, group: str, kind: int = 0) -> None:
    """Wait for the coordinator of a group (`kind` 1: a transactional id); the first request creates its topic."""
    asked = request("FindCoordinator", 2, key=group, key_type=kind)
    wait_until(lambda: wire.call(asked).error_code == 0, 30)
