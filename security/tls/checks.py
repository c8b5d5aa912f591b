"""Checks of a listener's keys and certificates before it listens: an error is one line that names the setting.

Also the days until a certificate expires.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .settings import TlsSettings
from .stores import KeyStore

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_DAY_S = 24 * 60 * 60
WARN_DAYS = 30
_FORMAT = "%Y-%m-%d %H:%M UTC"

Stat = Callable[[str], os.stat_result]


def check_key_file(settings: TlsSettings, stat_of: Stat = os.stat) -> None:
    """Check that only its owner and group can use the private key's file. Raises TlsError."""
    path = settings.keystore_location
    if path is None:
        return
    try:
        mode = stat_of(path).st_mode
    except (OSError, ValueError):
        return  # reading it says what is wrong
    name = "ssl.keystore.location"
    if not stat.S_ISREG(mode):
        raise settings.error(name, f"{path} is not a file")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        what = "read" if mode & stat.S_IROTH else "changed"
        raise settings.error(name, f"the key in {path} can be {what} by all users: run `chmod o-rwx {path}`")


def check_key_store(settings: TlsSettings, keys: KeyStore, now: float) -> None:
    """Check that key and certificates match and are valid at `now`. Raises TlsError."""
    name = chain_name(settings)
    if keys.key.public_key() != keys.chain[0].public_key():
        key_name = settings.key("ssl.keystore.key" if settings.keystore_key else "ssl.keystore.location")
        raise settings.error(
            name, f"the certificate of {_subject(keys.chain[0])} is not that of the key in {key_name}: use a pair"
        )
    for certificate in keys.chain:
        _check_dates(settings, name, certificate, now)
    for lower, upper in zip(keys.chain, keys.chain[1:], strict=False):
        if not is_issuer(upper, lower):
            raise settings.error(
                name,
                f"the chain is not complete: {_subject(lower)} must be followed by its issuer "
                f"{lower.issuer.rfc4514_string()}, not by {_subject(upper)}",
            )


def check_trust_store(settings: TlsSettings, trusted: Iterable[Certificate], now: float) -> None:
    """Check that a certificate of the trust store is valid at `now`. Raises TlsError."""
    certificates = list(trusted)
    if all(expiry_s(one) <= now for one in certificates):
        name = trust_name(settings)
        raise settings.error(name, f"{_subject(certificates[0])} {_expired(certificates[0])}: put a new one there")


def chain_name(settings: TlsSettings) -> str:
    """The setting that has the certificates."""
    return "ssl.keystore.certificate.chain" if settings.keystore_certificate_chain else "ssl.keystore.location"


def trust_name(settings: TlsSettings) -> str:
    """The setting that has the trusted certificates."""
    return "ssl.truststore.certificates" if settings.truststore_certificates else "ssl.truststore.location"


def expiry_s(certificate: Certificate) -> float:
    """The second after which the certificate is not valid."""
    return certificate.not_valid_after_utc.timestamp()


def days_to_expiry(certificates: Iterable[Certificate], now: float) -> float:
    """Days until the first of them expires; negative when it has."""
    return (min(map(expiry_s, certificates)) - now) / _DAY_S


def warnings(settings: TlsSettings, keys: KeyStore, trusted: Iterable[Certificate] | None, now: float) -> list[str]:
    """Lines that an operator should read although the listener works."""
    name = chain_name(settings)
    lines = list(filter(None, [expiry_warning(settings, keys.chain, now)]))
    last = keys.chain[-1]
    if len(keys.chain) == 1 and not is_issuer(last, last) and not any(is_issuer(one, last) for one in trusted or ()):
        issuer = last.issuer.rfc4514_string()
        lines.append(
            f"{settings.key(name)}: has no certificate of the issuer {issuer}; clients that do not trust that issuer "
            "itself cannot connect: append it if it is not their root"
        )
    return lines


def expiry_warning(settings: TlsSettings, chain: Sequence[Certificate], now: float) -> str:
    """A line about the certificate of a chain that expires first, if it does so soon; or else empty."""
    first = min(chain, key=expiry_s)
    days = days_to_expiry([first], now)
    if days >= WARN_DAYS:
        return ""
    when = f"expires in {days:.0f} days" if days >= 0 else _expired(first)
    return f"{settings.key(chain_name(settings))}: {_subject(first)} {when}: renew it"


def is_issuer(upper: Certificate, lower: Certificate) -> bool:
    """Whether `upper` signed `lower`."""
    from cryptography.exceptions import InvalidSignature

    try:
        lower.verify_directly_issued_by(upper)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _check_dates(settings: TlsSettings, name: str, certificate: Certificate, now: float) -> None:
    starts = certificate.not_valid_before_utc
    if starts.timestamp() > now:
        when = f"{starts:{_FORMAT}}"
        raise settings.error(name, f"{_subject(certificate)} is not valid before {when}: correct the clock, or wait")
    if expiry_s(certificate) <= now:
        raise settings.error(name, f"{_subject(certificate)} {_expired(certificate)}: renew it")


def _expired(certificate: Certificate) -> str:
    return f"expired on {certificate.not_valid_after_utc:{_FORMAT}}"


def _subject(certificate: Certificate) -> str:
    return certificate.subject.rfc4514_string() or "the certificate without a subject"
