"""Hosts of ACLs: `*`, one address as Java writes it, or, beyond Kafka, a network such as 10.0.0.0/8.

Kafka compares an ACL's host with InetAddress.getHostAddress(), which has no slash. So an Apache Kafka broker that reads
a network from the same tree matches no client with it, and keeps the text when it writes the node again: an ALLOW gives
less there than here, never more. A DENY would give more there, as Apache Kafka would not apply it, so that
`fault` refuses it: an ALLOW for the other networks says the same.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from odradek.security.acls.acl_types import WILDCARD, Permission

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ClientHost:
    """Where a client is: `text` as Java writes it, and the address for networks."""

    text: str
    address: Address | None

    @classmethod
    def parse(cls, text: str) -> ClientHost:
        """From the text of a socket's peer; an IPv4 address within IPv6 is the IPv4 address, as in Java."""
        try:
            address: Address = ipaddress.ip_address(text)
        except ValueError:
            return cls(text, None)
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        return cls(java_text(address), address)


def java_text(address: Address) -> str:
    """An address as InetAddress.getHostAddress() writes it: eight groups without leading zeros for IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    groups = ":".join(
        f"{high << 8 | low:x}" for high, low in zip(address.packed[::2], address.packed[1::2], strict=True)
    )
    return f"{groups}%{address.scope_id}" if address.scope_id else groups


def network(host: str) -> Network | None:
    """The network that an ACL's host names; None when it has no slash. Raises ValueError for one that is none."""
    return ipaddress.ip_network(host) if "/" in host else None


def fault(host: str, permission: Permission) -> str | None:
    """Why an ACL must not get this host; None when it may."""
    try:
        found = network(host)
    except ValueError:
        return f"The host {host:.100} must be *, an address, or a network without host bits such as 10.0.0.0/8."
    if found is not None and permission == Permission.DENY:
        return f"A DENY for the network {host:.100} is not possible: brokers of Apache Kafka ignore it."
    return None


class Hosts:
    """The hosts for which a right stands."""

    __slots__ = ("_everyone", "_networks", "_texts")

    def __init__(self, hosts: Iterable[str]) -> None:
        self._texts = frozenset(hosts)
        self._everyone = WILDCARD in self._texts
        self._networks = [found for host in self._texts if (found := _network_or_none(host)) is not None]

    def __contains__(self, client: ClientHost) -> bool:
        if self._everyone or client.text in self._texts:
            return True
        address = client.address
        return address is not None and any(address in network for network in self._networks)


def _network_or_none(host: str) -> Network | None:
    try:
        return network(host)
    except ValueError:  # it matches no client, as in Kafka
        return None
