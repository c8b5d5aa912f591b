"""What counts as one sender where senders are bounded: an IPv4 address, or the /64 of an IPv6 address. Pure.

A host with IPv6 usually has a /64 of its own, so its single addresses are without bound.
"""

from __future__ import annotations

import ipaddress

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
