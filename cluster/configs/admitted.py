"""Identifies connections from other brokers by address, because there is no authentication yet.

A broker serves requests between brokers (LeaderAndIsr, UpdateMetadata, StopReplica, ControlledShutdown, followers'
fetches, markers of another broker's transactions) only on the inter-broker listener, and only to addresses of
registered brokers' hosts or in `odradek.inter.broker.allowed.hosts`. Kafka requires ClusterAction there. Any sender at
such an address is trusted; an inter-broker listener that clients cannot reach shuts them out completely.

While a cluster goes over to another inter-broker listener, its brokers have different ones. Each registers its own, and
is served on that one as well, until it registers another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

ALLOWED = "odradek.inter.broker.allowed.hosts"
ANYBODY = "*"
_LOOPBACK = ("127.0.0.1", "::1")  # the source of connections to any loopback address, such as Debian's 127.0.1.1

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Admitted:
    """The allowed peers as snapshots carry them: the listener's name, addresses, and networks such as `10.0.0.0/8`.

    `others`: by listener, the addresses of brokers that reach others by that one.
    """

    def __init__(
        self, listener: str, addresses: Iterable[str], networks: Iterable[str] = (),
        others: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.raw: dict[str, Any] = {
            "listener": listener,
            "addresses": sorted(with_loopback(addresses)),
            "networks": list(networks),
            "others": {name: sorted(with_loopback(hosts)) for name, hosts in others.items()},
        }
        self._listener = listener
        self._addresses = frozenset(self.raw["addresses"])
        self._networks = [ipaddress.ip_network(network) for network in self.raw["networks"]]

    def allows(self, listener: str, host: str) -> bool:
        """Whether a connection to `listener` from the address `host` comes from a broker."""
        if listener != self._listener:
            return host in self.raw["others"].get(listener, ())
        return host in self._addresses or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        if not self._networks:
            return False
        found = address(host)
        return found is not None and any(found in network for network in self._networks)


def parse_allowed(text: str | None) -> list[str]:
    """The networks of `odradek.inter.broker.allowed.hosts`. ValueError names an invalid entry."""
    networks: list[str] = []
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        if part == ANYBODY:
            networks += ["0.0.0.0/0", "::/0"]
            continue
        try:
            networks.append(str(ipaddress.ip_network(part, strict=False)))
        except ValueError:
            raise ValueError(f"{part!r} is neither an address, nor a network such as 10.0.0.0/8, nor *") from None
    return networks


def with_loopback(addresses: Iterable[str]) -> set[str]:
    """These addresses; if one is a loopback address, also the source addresses of loopback connections."""
    found = set(addresses)
    if any((one := address(text)) is not None and one.is_loopback for text in found):
        found.update(_LOOPBACK)
    return found


def address(text: str) -> Address | None:
    """The address in a text, without its scope; None for a host name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost`, in any case, or a literal address of loopback."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_listener(address: str) -> bool:
    """Whether only this machine reaches a listener at `host:port`."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))


NOBODY = Admitted("", ())
