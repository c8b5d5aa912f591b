"""Invalid host names in a controller's request or a registration."""

from __future__ import annotations

import pytest

from odradek.broker.interbroker.resolver import Resolver

from ...harness.process import readable, wait_until


@pytest.mark.parametrize("host", ["a\0b", "x" * 64 + ".example", "x" * 5000, "..", "\udcff"])
def test_invalid_host_name_has_no_addresses(host: str) -> None:
    """ValueError or UnicodeError would end the resolving process."""
    resolver = Resolver()
    try:
        with pytest.raises(OSError):
            wait_until(lambda: _ask(resolver, host), 60)
    finally:
        resolver.close()


def _ask(resolver: Resolver, host: str) -> bool:
    found = resolver.resolve(host, 9092)
    readable(resolver, 0.05)
    resolver.drain()
    return found is not None
