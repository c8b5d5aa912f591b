"""What counts as one sender where senders are bounded, and which of their connections goes for a new one. Pure.

A sender is an IPv4 address, or the /64 of an IPv6 address: a host with IPv6 usually has one, and all addresses in it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")
_PREFIX = 64  # bits


def network(host: str) -> str:
    """The sender that an address counts as; a text that is no address counts as itself."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found), _PREFIX), strict=False))


def next_to_go(senders: Mapping[T, str]) -> T:
    """The oldest connection of the sender that has most. `senders`: of each connection, the oldest first; not empty."""
    ((most, _),) = Counter(senders.values()).most_common(1)
    return next(connection for connection, sender in senders.items() if sender == most)
