"""Settings and stores to `ssl.SSLContext`s: one for the server side, one for the client side.

A private key never reaches a file that others could open: Python's ssl wants paths, so the key stands in an anonymous
memory file of this process for as long as OpenSSL reads it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import ciphers
from .checks import chain_name
from .settings import TlsSettings
from .stores import KeyStore

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BROKEN = ("TLSv1", "TLSv1.1", "SSL", "SSLv2", "SSLv2Hello", "SSLv3")
_ANY = ("TLS", "TLSv1.3")  # `ssl.protocol` sets no limit
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
OP_ENABLE_KTLS = 1 << 3  # OpenSSL's SSL_OP_ENABLE_KTLS; Python names it from 3.12 on


def server_context(
    settings: TlsSettings, keys: KeyStore, trusted: Iterable[Certificate] | None, ktls: bool = False
) -> ssl.SSLContext:
    """The context for connections that clients open. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, settings, protocols(settings))
    # A resumed session is of use only to the worker that made it; without tickets a handshake costs less.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | (OP_ENABLE_KTLS if ktls else 0)
    context.num_tickets = 0
    _load_key(context, settings, keys)
    if settings.client_auth != "none":
        if trusted is None:
            need = f"must be set, because {settings.key('ssl.client.auth')}={settings.client_auth} checks certificates"
            raise settings.error("ssl.truststore.location", need)
        _trust(context, trusted)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def client_context(
    settings: TlsSettings,
    keys: KeyStore | None,
    trusted: Iterable[Certificate] | None,
    *,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """The context for connections to other brokers or to ZooKeeper; wrap with the peer's name. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, settings, client_protocols(settings))
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = check_hostname and checks_hostname(settings)
    if keys is not None:
        _load_key(context, settings, keys)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted)
    return context


def check(settings: TlsSettings) -> None:
    """Versions, cipher suites and the like, before any file is read. Raises TlsError."""
    checks_hostname(settings)
    for versions in (protocols(settings), client_protocols(settings)):
        _suites(settings, versions)


def protocols(settings: TlsSettings) -> list[str]:
    """`ssl.enabled.protocols`, the oldest first. Raises TlsError."""
    name = "ssl.enabled.protocols"
    if not settings.enabled_protocols:
        raise settings.error(name, f"must have one of {', '.join(VERSIONS)}")
    for version in settings.enabled_protocols:
        if version not in VERSIONS:
            why = "is broken" if version in _BROKEN else "is unknown"
            raise settings.error(name, f"{version} {why}: use {' or '.join(VERSIONS)}")
    return sorted(settings.enabled_protocols)


def client_protocols(settings: TlsSettings) -> list[str]:
    """Those of a client, which uses none above `ssl.protocol`. Raises TlsError."""
    limit = settings.protocol
    if limit not in (*VERSIONS, *_ANY):
        raise settings.error("ssl.protocol", f"{limit} is unknown or broken: use {' or '.join(VERSIONS)}")
    found = [version for version in protocols(settings) if limit in _ANY or version <= limit]
    if not found:
        raise settings.error("ssl.protocol", f"{limit} is below all of ssl.enabled.protocols: use TLSv1.3")
    return found


def checks_hostname(settings: TlsSettings) -> bool:
    """Whether a client compares the server's certificate with its name. Raises TlsError."""
    algorithm = settings.endpoint_identification_algorithm.strip()
    if algorithm and algorithm.lower() != "https":
        text = f"must be https, or empty to accept any name, not {algorithm!r}"
        raise settings.error("ssl.endpoint.identification.algorithm", text)
    return bool(algorithm)


def _set_versions(context: ssl.SSLContext, settings: TlsSettings, versions: list[str]) -> None:
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]
    suites = _suites(settings, versions)
    if not suites:
        return
    try:
        ciphers.set_suites(context, suites)
    except ValueError as error:
        raise settings.error(
            "ssl.cipher.suites", f"{error}: remove them, or TLSv1.3 from ssl.enabled.protocols"
        ) from None


def _suites(settings: TlsSettings, versions: list[str]) -> list[str]:
    """The suites of these versions; all may be used when there are none in the settings."""
    name = "ssl.cipher.suites"
    for suite in settings.cipher_suites:
        if not ciphers.is_known(suite):
            near = ciphers.nearest(suite)
            raise settings.error(name, f"{suite} is unknown: {f'use {near}' if near else 'remove it'}")
    usable = [
        suite for suite in settings.cipher_suites if ("TLSv1.3" if ciphers.is_tls13(suite) else "TLSv1.2") in versions
    ]
    if settings.cipher_suites and not usable:
        raise settings.error(name, f"none of them is of {' or '.join(versions)}: change ssl.enabled.protocols")
    return usable


def _load_key(context: ssl.SSLContext, settings: TlsSettings, keys: KeyStore) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = keys.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(one.public_bytes(Encoding.PEM) for one in keys.chain)
    with memory_file(key + chain) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:  # a short key, or a signature by SHA-1
            why = (error.reason or "unknown").lower().replace("_", " ")
            raise settings.error(chain_name(settings), f"OpenSSL refuses it: {why}; make a new one") from None


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """The path of a file in memory that only this process has, for as long as the block runs."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _trust(context: ssl.SSLContext, trusted: Iterable[Certificate]) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    # As in Java, every certificate of the trust store ends a chain, not only one that signed itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata="".join(one.public_bytes(Encoding.PEM).decode() for one in trusted))
