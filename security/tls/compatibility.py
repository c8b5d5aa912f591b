"""Whether a new certificate may take the place of the old one while a listener runs, by Kafka's rules (SslFactory).

So a wrong file cannot change a broker's identity: the names in the certificate stay, unless `ssl.allow.dn.changes` or
`ssl.allow.san.changes` lets them change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import distinguished_names
from .checks import chain_name, trust_name
from .listener import TlsListener

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def check(new: TlsListener, old: TlsListener) -> None:
    """`new` may replace `old`. Raises TlsError."""
    if old.trusted is None and new.trusted is not None:
        raise new.settings.error(
            trust_name(new.settings), "cannot be added while the listener runs: restart the broker"
        )
    if not new.settings.allow_dn_changes:
        _check_name(new, old)
    if not new.settings.allow_san_changes:
        _check_alternative_names(new, old)


def _check_name(new: TlsListener, old: TlsListener) -> None:
    before, after = (distinguished_names.text(one.keys.chain[0].subject.public_bytes()) for one in (old, new))
    if distinguished_names.canonical(before) != distinguished_names.canonical(after):
        text = f"the new certificate is of {after}, the old one of {before}: set ssl.allow.dn.changes=true to allow it"
        raise new.settings.error(chain_name(new.settings), text)


def _check_alternative_names(new: TlsListener, old: TlsListener) -> None:
    missing = alternative_names(old.keys.chain[0]) - alternative_names(new.keys.chain[0])
    if missing:
        names = ", ".join(sorted(missing))
        text = f"the new certificate lacks the names {names} of the old one: set ssl.allow.san.changes=true to allow it"
        raise new.settings.error(chain_name(new.settings), text)


def alternative_names(certificate: Certificate) -> set[str]:
    """The SubjectAltNames, each with its kind: `DNSName:broker1`."""
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return set()
    return {f"{type(name).__name__}:{name.value}" for name in names}
