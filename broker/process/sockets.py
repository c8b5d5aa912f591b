"""The listening sockets. The supervisor opens and keeps them, so that they outlive every acceptor:
while an acceptor is respawned, clients wait in the backlog instead of being refused."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.broker.errors import BootError
from odradek.broker.listeners import Endpoint, literal

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig

# Linux's own limit. With Kafka's default of 50, thousands of clients at once wait seconds until they resend their SYN.
BACKLOG = 4096

_INSTALL_AGAIN = "`odradek systemd install` takes the sockets from `listeners`; run it again after changing them"


def backlog(config: BrokerConfig) -> int:
    """How many clients may wait to be accepted (`socket.listen.backlog.size`)."""
    is_set = "socket.listen.backlog.size" in config.originals
    return int(config["socket.listen.backlog.size"]) if is_set else BACKLOG


def receive_buffer(config: BrokerConfig) -> int:
    """SO_RCVBUF of the listening sockets (`socket.receive.buffer.bytes`), -1 for the kernel's default."""
    is_set = "socket.receive.buffer.bytes" in config.originals
    return int(config["socket.receive.buffer.bytes"]) if is_set else -1


def open_all(endpoints: Iterable[Endpoint], backlog: int, receive_buffer: int = -1) -> dict[str, socket.socket]:
    """Bind and listen on every endpoint; by listener name. Raises BootError naming the one that fails."""
    opened: dict[str, socket.socket] = {}
    try:
        for endpoint in endpoints:
            opened[endpoint.name] = _open(endpoint, backlog, receive_buffer)
    except OSError as error:
        for sock in opened.values():
            sock.close()
        raise BootError(_explain(endpoint, error)) from None
    return opened


def by_listener(handed: Iterable[tuple[str, socket.socket]], endpoints: Sequence[Endpoint]) -> dict[str, socket.socket]:
    """Inherited sockets by listener name. The supervisor passes the name along; systemd knows addresses only.

    Raises BootError when a listener has no socket, or a socket no listener."""
    found: dict[str, socket.socket] = {}
    for name, sock in handed:
        known = name in {endpoint.name for endpoint in endpoints}
        found[name if known else _listener_of(sock, endpoints)] = sock
    missing = [str(endpoint) for endpoint in endpoints if endpoint.name not in found]
    if missing:
        raise BootError(f"no socket was passed for {', '.join(missing)}: {_INSTALL_AGAIN}")
    return found


def _listener_of(sock: socket.socket, endpoints: Sequence[Endpoint]) -> str:
    """Two listeners may have the same port, one on an IPv4 address and one on an IPv6 address."""
    port, is_ipv6 = int(sock.getsockname()[1]), sock.family == socket.AF_INET6
    same = [endpoint for endpoint in endpoints if endpoint.port == port]
    if len(same) > 1:
        same = [endpoint for endpoint in same if (":" in endpoint.host) == is_ipv6]
    if not same:
        raise BootError(f"a socket on port {port} was passed, but no listener has this port: {_INSTALL_AGAIN}")
    return same[0].name


def address_of(endpoint: Endpoint) -> str:
    """The numeric address that a listener binds. Raises BootError when its host is unknown."""
    try:
        return str(_address(endpoint)[1][0])
    except OSError as error:
        raise BootError(_explain(endpoint, error)) from None


def bound_ports(opened: dict[str, socket.socket]) -> dict[str, int]:
    """The bound port of each listener; the configured one may be 0."""
    return {name: int(sock.getsockname()[1]) for name, sock in opened.items()}


def _open(endpoint: Endpoint, backlog: int, receive_buffer: int) -> socket.socket:
    family, address = _address(endpoint)
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _set_options(sock, endpoint, receive_buffer)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _set_options(sock: socket.socket, endpoint: Endpoint, receive_buffer: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        # "" is every address of both families, as in Java; a literal IPv6 address is only that one.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(endpoint.host)))
    if receive_buffer > 0:  # before listen, as the handshake fixes the window scale
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)


def _address(endpoint: Endpoint) -> tuple[int, tuple[object, ...]]:
    if not endpoint.host:
        if _has_ipv6():
            return socket.AF_INET6, ("::", endpoint.port)
        return socket.AF_INET, ("0.0.0.0", endpoint.port)
    flags = socket.AI_PASSIVE | (socket.AI_NUMERICHOST if literal(endpoint.host) else 0)
    # As bytes, the name does not pass through IDNA, whose tables a broker on an address has no use for.
    host = endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
    found = socket.getaddrinfo(host, endpoint.port, 0, socket.SOCK_STREAM, 0, flags)
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _explain(endpoint: Endpoint, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{endpoint}: port {endpoint.port} is in use by another program; stop it or change `listeners`"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{endpoint}: port {endpoint.port} is not allowed for this user; change `listeners`"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{endpoint}: this machine has no address {endpoint.host!r}; change `listeners`"
    return f"{endpoint}: {error.strerror or error}; change `listeners`"
