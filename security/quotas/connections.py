"""The connection rate of IP addresses (KIP-612), in the one process that accepts connections. No sockets, no clock.

An address that exceeds its rate is not refused at once: the connection is accepted, kept without being read for the
throttle time and then closed, so that a client which reconnects in a loop slows down.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.security.quotas.rates import Rate, Window

_IDLE_MS = 3_600_000  # Kafka's expiry of sensors


class AddressRates:
    """The connections of each address that has a quota. `bound(address)`: connections per second, None for no quota."""

    def __init__(self, window: Window, bound: Callable[[str], float | None]) -> None:
        self._window, self.bound = window, bound
        self._rates: dict[str, tuple[Rate, int]] = {}

    def connected(self, address: str, now_ms: int) -> int:
        """Count a new connection; 0, or the ms after which it must be closed. A throttled connection does not count."""
        bound = self.bound(address)
        if bound is None:
            return 0
        rate = self._rates.get(address, (None, 0))[0] or Rate(self._window)
        self._rates[address] = rate, now_ms
        rate.record(1, now_ms)
        throttled_ms = min(rate.throttle_ms(bound, now_ms), self._window.most_ms)
        if throttled_ms > 0:
            rate.record(-1, now_ms)
        return throttled_ms

    def expire(self, now_ms: int) -> None:
        """Forget addresses that have not connected for an hour. Call it now and then."""
        self._rates = {one: entry for one, entry in self._rates.items() if now_ms - entry[1] < _IDLE_MS}
