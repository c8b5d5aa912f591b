"""IP addresses as texts: one notation for each address, so that settings and sockets can be compared."""

from __future__ import annotations

import ipaddress


def canonical(text: str) -> str:
    """The text of an address as Python writes it, without a zone; an IPv4 address within IPv6 is the IPv4 address, as
    in Java. Other texts stay as they are."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
