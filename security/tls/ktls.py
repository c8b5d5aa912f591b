"""TLS in the kernel (kTLS): what this machine supports. Then `sendfile` and `splice` work on encrypted connections.

It takes a kernel with the upper layer protocol `tls`, OpenSSL 3 built with it, a non-blocking SSLSocket on a real TCP
socket (not memory), and the option OP_ENABLE_KTLS. Whether a connection has it shows only after its handshake.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol

ULP_FILE = "/proc/sys/net/ipv4/tcp_available_ulp"
_SOL_TLS, _TLS_TX, _CRYPTO_INFO_BYTES = 282, 1, 4  # of linux/tls.h: the record version and the cipher


class Socket(Protocol):
    """The socket method that this module calls."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes: ...


class Support(NamedTuple):
    """Whether to ask for kTLS, and the line that `status` shows."""

    available: bool
    text: str


def support(available_ulps: str, openssl: tuple[int, ...] = ssl.OPENSSL_VERSION_INFO) -> Support:
    """The machine's support, from the content of ULP_FILE and OpenSSL's version."""
    if "tls" not in available_ulps.split():
        return Support(False, f"kTLS: no, the kernel has no `tls` in {ULP_FILE} (module tls)")
    if openssl < (3,):
        return Support(False, "kTLS: no, it needs OpenSSL 3")
    return Support(True, "kTLS: on where the cipher suite allows it")


def is_active(connection: Socket) -> bool:
    """Whether the kernel encrypts what this connection sends; ask after the handshake."""
    try:
        return bool(connection.getsockopt(_SOL_TLS, _TLS_TX, _CRYPTO_INFO_BYTES))
    except OSError:
        return False
