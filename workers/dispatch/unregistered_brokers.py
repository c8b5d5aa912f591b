"""Refuses follower requests from addresses of no registered broker, and has the addresses looked up again.

The follower retries. Its host may have registered just now, or may have a new address, without any other change in the
cluster: so the worker asks the controller process to look up the addresses (broker.controller.member.broker_addresses),
at most once a second. The coordinator does the same when it refuses markers (workers.apis.k27_write_txn_markers).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from odradek.cluster import internal
from odradek.cluster.configs.admitted import ALLOWED, Admitted

log = logging.getLogger(__name__)

_PAUSE_S = 1.0  # between two look-ups
_SILENT_S = 60.0  # after which an address is logged again
_MOST = 100  # addresses logged in that time


class AddressLookups:
    """Requests to look up the registered brokers again: one at a time, and at most one a second.

    `send(answered)` sends one and must call `answered` once.
    """

    def __init__(self, send: Callable[[Callable[[], None]], None]) -> None:
        self._send = send
        self._next_at = -math.inf
        self._in_flight = False  # a request is unanswered

    def request(self) -> None:
        """A request was refused: look up the brokers again."""
        now = time.monotonic()
        if now >= self._next_at and not self._in_flight:
            self._next_at, self._in_flight = now + _PAUSE_S, True
            self._send(self._answered)

    def _answered(self) -> None:
        self._in_flight = False


class UnregisteredBrokers:
    """A worker's check of which addresses may be followers."""

    def __init__(self, admitted: Callable[[], Admitted], forward: Callable[..., None]) -> None:
        """`admitted()`: the addresses in force. `forward` sends a request to the controller process."""
        self._admitted = admitted
        self._forward = forward
        self._lookups = AddressLookups(self._send)
        self._named: set[str] = set()
        self._forget_at = -math.inf

    def refuses(self, replica: int, listener: str, host: str) -> bool:
        """Whether a request with this replica id (-1: a consumer) comes from an address of no known broker."""
        if replica < 0 or self._admitted().allows(listener, host):
            return False
        self._warn(time.monotonic(), listener, host)
        self._lookups.request()
        return True

    def _send(self, answered: Callable[[], None]) -> None:
        self._forward(internal.LOOK_FOR_BROKERS, 0, internal.encode({}), lambda _flags, _body: answered())

    def _warn(self, now: float, listener: str, host: str) -> None:
        if now >= self._forget_at:
            self._named.clear()
            self._forget_at = now + _SILENT_S
        if host in self._named or len(self._named) >= _MOST:
            return
        self._named.add(host)
        log.warning(
            "rejected a follower's request from %s on listener %s: not the address of a registered broker "
            "(if it is one, set %s)", host, listener, ALLOWED,
        )  # fmt: skip
