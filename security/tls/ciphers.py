"""`ssl.cipher.suites`: the names of Java (and IANA) as OpenSSL's, and suites of TLS 1.3, which Python lists apart."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable

_TLS13 = re.compile(r"TLS_(AES|CHACHA20)_\w+")
# Only exchanges that a certificate authenticates, and ciphers that encrypt.
_TLS12 = re.compile(
    r"(?:TLS|SSL)_(?P<exchange>RSA|DHE_RSA|DHE_DSS|ECDHE_RSA|ECDHE_ECDSA)_WITH_"
    r"(?:(?P<block>(?:AES|CAMELLIA)_(?:128|256))_(?P<mode>CBC|GCM|CCM_8|CCM)(?:_(?P<mac>SHA\d*))?"
    r"|(?P<stream>CHACHA20_POLY1305)_SHA256)"
)
_MODES = {"CBC": "", "GCM": "GCM", "CCM": "CCM", "CCM_8": "CCM8"}


def is_tls13(name: str) -> bool:
    """Whether the suite is one of TLS 1.3."""
    return _TLS13.fullmatch(name) is not None


def openssl_name(name: str) -> str | None:
    """`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` as ECDHE-RSA-AES256-GCM-SHA384; None for an unusable suite."""
    if is_tls13(name):
        return name
    found = _TLS12.fullmatch(name)
    if found is None:
        return None
    exchange = "" if found["exchange"] == "RSA" else found["exchange"]  # OpenSSL leaves RSA out
    if found["stream"]:
        parts = [exchange, found["stream"]]
    else:
        parts = [exchange, found["block"].replace("_", ""), _MODES[found["mode"]], found["mac"]]
    return "-".join(filter(None, parts)).replace("_", "-")


def is_known(name: str) -> bool:
    """Whether this machine's OpenSSL has the suite."""
    known = openssl_name(name)
    if known is None:
        return False
    if is_tls13(name):
        return known in tls13_suites()
    return known in names_of(known)


def names_of(ciphers: str) -> set[str]:
    """The suites up to TLS 1.2 that `ciphers` selects in OpenSSL; none when OpenSSL knows none of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        return set()
    return {entry["name"] for entry in context.get_ciphers() if not is_tls13(entry["name"])}


def tls13_suites() -> set[str]:
    """The suites of TLS 1.3 that OpenSSL can use."""
    names = ("AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_GCM_SHA256", "AES_128_CCM_SHA256")
    return {f"TLS_{name}" for name in (*names, "AES_128_CCM_8_SHA256")}


def nearest(name: str) -> str:
    """The suite that `name` may mean, in Java's name; empty when none is near."""
    import difflib

    return next(iter(difflib.get_close_matches(name.upper(), _COMMON, 1, 0.8)), "")


def set_suites(context: ssl.SSLContext, names: Iterable[str]) -> None:
    """Let `context` use these suites only. Raises ValueError when this Python cannot choose those of TLS 1.3."""
    names = list(names)
    newer = [name for name in names if is_tls13(name)]
    older = [text for text in map(openssl_name, names) if text and not is_tls13(text)]
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if newer:
        _set_tls13(context, newer)
    else:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def _set_tls13(context: ssl.SSLContext, names: list[str]) -> None:
    if hasattr(context, "set_ciphersuites"):  # Python 3.15
        context.set_ciphersuites(":".join(names))
    else:
        _set_by_openssl(context, names)
    if [entry["name"] for entry in context.get_ciphers() if is_tls13(entry["name"])] != names:
        raise ValueError("this Python cannot choose suites of TLS 1.3")


def _set_by_openssl(context: ssl.SSLContext, names: list[str]) -> None:
    """Call OpenSSL itself: CPython's object starts with the header of all objects, then has the SSL_CTX."""
    import _ssl
    import ctypes

    file = getattr(_ssl, "__file__", None)
    if file is None:
        raise ValueError("this Python cannot choose suites of TLS 1.3")
    library = ctypes.CDLL(file)  # finds the symbols of the OpenSSL that it is linked with
    library.SSL_CTX_set_ciphersuites.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
    library.SSL_CTX_set_ciphersuites(pointer, ":".join(names).encode())


_COMMON = tuple(sorted(tls13_suites())) + tuple(
    f"TLS_{exchange}_WITH_{cipher}"
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA")
    for cipher in (
        "AES_256_GCM_SHA384", "AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256", "AES_256_CBC_SHA384",
        "AES_128_CBC_SHA256", "AES_256_CBC_SHA", "AES_128_CBC_SHA",
    )
)  # fmt: skip
