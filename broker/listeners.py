"""`listeners` and `advertised.listeners`: text to endpoints, with Kafka's rules about names and ports.

Facts from Kafka's `SocketServerConfigs` and `CoreUtils`: names are upper-cased, an empty host means every
address, a port may be shared only by one IPv4 and one IPv6 literal, port 0 (any free one) may repeat.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

ANY_HOSTS = ("", "0.0.0.0", "::")
MOST = 64  # listeners that a change may leave: their sockets are passed in one message
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class ListenerError(ValueError):
    """A listener setting that cannot work; the text says what to change."""


class Endpoint(NamedTuple):
    """One listener: `host` is "" for every address, `port` 0 for any free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{bracket(self.host)}:{self.port}"

    @property
    def is_any(self) -> bool:
        """True when it stands for every address of the machine, which cannot be advertised."""
        return self.host in ANY_HOSTS

    @property
    def is_loopback(self) -> bool:
        """True when only programs on this machine can reach it."""
        if self.host == "localhost":
            return True
        address = literal(self.host)
        return address is not None and address.is_loopback


def bracket(host: str) -> str:
    """An IPv6 literal in brackets, any other host as it is."""
    return f"[{host}]" if ":" in host else host


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address when the host is a literal one, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def parse_endpoints(key: str, text: str) -> list[Endpoint]:
    """Parse a comma-separated list such as `PLAINTEXT://[::1]:9092`. Raises ListenerError naming `key`."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    return [_parse_endpoint(key, entry) for entry in entries]


def _parse_endpoint(key: str, entry: str) -> Endpoint:
    found = _ENDPOINT.fullmatch(entry)
    if found is None or not found.group(1):
        raise ListenerError(f"{key}: {entry!r} is not of the form NAME://host:port")
    name, host, port = found.group(1).upper(), found.group(2), int(found.group(3))
    if not 0 <= port <= 65535:
        raise ListenerError(f"{key}: port {port} of {entry!r} is outside 0..65535")
    return Endpoint(name, host, port)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `listener.security.protocol.map` (`NAME:PROTOCOL,…`). Raises ListenerError."""
    pairs: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon or protocol.upper() not in PROTOCOLS:
            raise ListenerError(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL; "
                f"the protocols are {', '.join(PROTOCOLS)}"
            )
        pairs[name.upper()] = protocol.upper()
    return pairs


def check_listeners(endpoints: list[Endpoint], protocols: Mapping[str, str]) -> None:
    """Refuse duplicate names or ports, and names without a protocol."""
    if not endpoints:
        raise ListenerError("listeners: at least one is needed, for example PLAINTEXT://127.0.0.1:9092")
    _refuse_twins("listeners", "name", [endpoint.name for endpoint in endpoints])
    _refuse_shared_ports(endpoints)
    for endpoint in endpoints:
        _check_protocol(endpoint.name, protocols)


def check_advertised(advertised: list[Endpoint], endpoints: list[Endpoint]) -> None:
    """Refuse advertised names without a listener, and addresses that no client can connect to."""
    names = [endpoint.name for endpoint in endpoints]
    if not advertised:
        raise ListenerError("advertised.listeners: at least one is needed, or remove the setting")
    _refuse_twins("advertised.listeners", "name", [endpoint.name for endpoint in advertised])
    for endpoint in advertised:
        if endpoint.name not in names:
            raise ListenerError(f"advertised.listeners: no listener {endpoint.name} (there are {', '.join(names)})")
        if endpoint.is_any:
            raise ListenerError(f"advertised.listeners: {endpoint} is not an address that clients can connect to")


def check_change(
    former: Iterable[Endpoint], protocols: Mapping[str, str], changed: Sequence[Endpoint],
    changed_protocols: Mapping[str, str],
) -> None:  # fmt: skip
    """Refuse a change of listeners that a running broker cannot carry out: listeners come and go, none changes.

    Clients of a listener rely on its protocol. Kafka does not move a listener either: it advertises the new address
    and listens at the old one.
    """
    if len(changed) > MOST:
        raise ListenerError(f"listeners: at most {MOST} are possible, not {len(changed)}")
    new = {endpoint.name: endpoint for endpoint in changed}
    for old in former:
        one = new.get(old.name)
        if one is None:
            continue
        if changed_protocols[old.name] != protocols[old.name]:
            raise ListenerError(
                f"listener.security.protocol.map: the protocol of the listener {old.name} cannot change from "
                f"{protocols[old.name]} while the broker runs: add a listener under another name"
            )
        if one != old:
            raise ListenerError(
                f"listeners: the address of {old.name} cannot change from {bracket(old.host)}:{old.port} while the "
                "broker runs: remove the listener first, or add one under another name"
            )


def between_brokers(settings: Mapping[str, Any]) -> str:
    """The name of the inter-broker listener; without inter.broker.listener.name, the name of its protocol."""
    name, protocol = (settings.get(key) for key in ("inter.broker.listener.name", "security.inter.broker.protocol"))
    return str(name or protocol or "PLAINTEXT").upper()


def default_advertised(endpoints: Iterable[Endpoint], host: str = "", port: int = 0) -> list[Endpoint]:
    """The default of advertised.listeners: the listeners, with the host name in place of a wildcard address."""
    return [
        endpoint._replace(
            host=host or (socket.gethostname() if endpoint.is_any else endpoint.host),
            port=port or endpoint.port,
        )
        for endpoint in endpoints
    ]


def _check_protocol(name: str, protocols: Mapping[str, str]) -> None:
    protocol = protocols.get(name)
    if protocol is None:
        raise ListenerError(f"listener.security.protocol.map has no entry for {name}; add {name}:PLAINTEXT")


def _refuse_twins(key: str, what: str, values: list[str]) -> None:
    twins = sorted({value for value in values if values.count(value) > 1})
    if twins:
        raise ListenerError(f"{key}: each {what} may appear once, {', '.join(twins)} appears more often")


def _refuse_shared_ports(endpoints: list[Endpoint]) -> None:
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and not _one_of_each_family(sharing):
            raise ListenerError(
                f"listeners: port {port} is used {len(sharing)} times; only one IPv4 and one IPv6 address may share it"
            )


def _one_of_each_family(endpoints: list[Endpoint]) -> bool:
    addresses = [literal(endpoint.host) for endpoint in endpoints]
    return sorted(address.version for address in addresses if address) == [4, 6] and len(addresses) == 2
