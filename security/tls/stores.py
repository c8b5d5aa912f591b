"""Key stores and trust stores: PEM by file or inline, PKCS12 by file, to keys and certificates in memory.

A JKS file is refused with the line that converts it: no maintained library reads JKS. Of the file types, the
content decides between JKS and PKCS12, as in Java, where either reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import pem
from .settings import TlsSettings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

TYPES = ("PEM", "PKCS12", "JKS")
_JAVA_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS and JCEKS
_DER_SEQUENCE = b"\x30"

Read = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificates, the leaf first."""

    key: Any
    chain: tuple[Certificate, ...]

    def __repr__(self) -> str:
        return f"KeyStore({self.chain[0].subject.rfc4514_string()})"


def read_file(path: str) -> bytes:
    """The content of a file; a test may give another."""
    return Path(path).read_bytes()


def key_store(settings: TlsSettings, read: Read = read_file) -> KeyStore | None:
    """The listener's key and certificates, None when none are set. Raises TlsError."""
    _check_key_settings(settings)
    if settings.keystore_key is not None:
        assert settings.keystore_certificate_chain is not None
        return _pem_keys(settings, settings.keystore_key, settings.keystore_certificate_chain, inline=True)
    if settings.keystore_location is None:
        return None
    data = _content(settings, "ssl.keystore", settings.keystore_location, read)
    if settings.keystore_type.upper() == "PEM":
        text = data.decode("utf-8", "replace")
        return _pem_keys(settings, text, text, inline=False)
    return _pkcs12_keys(settings, data)


def trust_store(settings: TlsSettings, read: Read = read_file) -> tuple[Certificate, ...] | None:
    """The certificates that the listener trusts, None when none are set. Raises TlsError."""
    _check_trust_settings(settings)
    if settings.truststore_certificates is not None:
        return _pem_trust(settings, "ssl.truststore.certificates", settings.truststore_certificates)
    if settings.truststore_location is None:
        return None
    data = _content(settings, "ssl.truststore", settings.truststore_location, read)
    if settings.truststore_type.upper() == "PEM":
        return _pem_trust(settings, "ssl.truststore.location", data.decode("utf-8", "replace"))
    store = _pkcs12(settings, "ssl.truststore", data, settings.truststore_password)
    found = [store.cert, *store.additional_certs]
    return _some(settings, "ssl.truststore.location", tuple(one.certificate for one in found if one))


def _check_key_settings(settings: TlsSettings) -> None:
    """Kafka's rules of which key settings go together."""
    s = settings
    _check_type(s, "ssl.keystore.type", s.keystore_type)
    is_pem = s.keystore_type.upper() == "PEM"
    for value, other, name, needs in (
        (s.keystore_key, s.keystore_certificate_chain, "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        (s.keystore_certificate_chain, s.keystore_key, "ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ):
        if value is not None and other is None:
            raise s.error(name, f"needs {needs} too")
    if s.keystore_key is not None and not is_pem:
        raise s.error("ssl.keystore.key", f"needs ssl.keystore.type=PEM, not {s.keystore_type}")
    if s.keystore_key is not None and s.keystore_location is not None:
        raise s.error("ssl.keystore.key", "cannot be set together with ssl.keystore.location: remove one of them")
    _check_password(s, "ssl.keystore", s.keystore_location, s.keystore_password, is_pem)
    if s.keystore_location is not None and s.keystore_password is None and not is_pem:
        raise s.error(
            "ssl.keystore.password", f"must be set for the key store {s.keystore_location}, or ssl.keystore.type=PEM"
        )


def _check_trust_settings(settings: TlsSettings) -> None:
    """Kafka's rules of which trust settings go together."""
    s = settings
    _check_type(s, "ssl.truststore.type", s.truststore_type)
    is_pem = s.truststore_type.upper() == "PEM"
    if s.truststore_certificates is not None and not is_pem:
        raise s.error("ssl.truststore.certificates", f"needs ssl.truststore.type=PEM, not {s.truststore_type}")
    if s.truststore_certificates is not None and s.truststore_location is not None:
        raise s.error(
            "ssl.truststore.certificates", "cannot be set together with ssl.truststore.location: remove one of them"
        )
    _check_password(s, "ssl.truststore", s.truststore_location, s.truststore_password, is_pem)


def _check_type(settings: TlsSettings, name: str, value: str) -> None:
    if value.upper() not in TYPES:
        raise settings.error(name, f"must be one of {', '.join(TYPES)}, not {value!r}")


def _check_password(settings: TlsSettings, store: str, location: str | None, password: str | None, pem: bool) -> None:
    if password is None:
        return
    if pem:
        key = "; the password of a key is ssl.key.password" if store == "ssl.keystore" else ""
        raise settings.error(f"{store}.password", f"cannot be set with {store}.type=PEM: remove it{key}")
    if location is None:
        raise settings.error(f"{store}.password", f"needs {store}.location too")


def _content(settings: TlsSettings, store: str, path: str, read: Read) -> bytes:
    name = f"{store}.location"
    try:
        data = read(path)
    except FileNotFoundError:
        raise settings.error(name, f"{path} does not exist") from None
    except OSError as error:
        raise settings.error(name, f"cannot read {path}: {error.strerror}; the broker's user must be able to") from None
    except ValueError:
        raise settings.error(name, f"{path!r} is not a path: a path has no NUL") from None
    declared = getattr(settings, f"{store[4:]}_type").upper()
    if data.startswith(_JAVA_MAGIC):
        raise settings.error(name, _conversion(path, store))
    if declared != "PEM" and b"-----BEGIN " in data and not data.startswith(_DER_SEQUENCE):
        raise settings.error(f"{store}.type", f"{path} is a PEM file: set {store}.type=PEM")
    if declared == "PEM" and data.startswith(_DER_SEQUENCE):
        raise settings.error(f"{store}.type", f"{path} is not a PEM file: set {store}.type=PKCS12")
    return data


def _conversion(path: str, store: str) -> str:
    target = Path(path).with_suffix(".p12")
    return (
        f"{path} has Java's own format: convert it with `keytool -importkeystore -srckeystore {path} "
        f"-destkeystore {target} -deststoretype PKCS12`, then set {store}.location={target} and {store}.type=PKCS12"
    )


def _pem_keys(settings: TlsSettings, key: str, chain: str, inline: bool) -> KeyStore:
    key_name = "ssl.keystore.key" if inline else "ssl.keystore.location"
    chain_name = "ssl.keystore.certificate.chain" if inline else "ssl.keystore.location"
    found = pem.private_keys(key)
    if len(found) != 1:
        raise settings.error(key_name, f"must hold one private key in PEM, not {len(found) or 'none'}")
    certificates = _pem_certificates(settings, chain_name, chain)
    return KeyStore(_private_key(settings, key_name, found[0]), _some(settings, chain_name, certificates))


def _private_key(settings: TlsSettings, name: str, block: bytes) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    encrypted = b"ENCRYPTED" in block
    password = settings.key_password.encode() if settings.key_password is not None else None
    if encrypted and password is None:
        raise settings.error("ssl.key.password", f"must be set: the key of {settings.key(name)} is encrypted")
    try:
        return load_pem_private_key(block, password if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise settings.error("ssl.key.password", f"does not open the key of {settings.key(name)}") from None
        raise settings.error(name, "its private key cannot be read: write it as PKCS #8 in PEM") from None


def _pem_trust(settings: TlsSettings, name: str, text: str) -> tuple[Certificate, ...]:
    return _some(settings, name, _pem_certificates(settings, name, text))


def _pem_certificates(settings: TlsSettings, name: str, text: str) -> tuple[Certificate, ...]:
    from cryptography.x509 import load_pem_x509_certificate

    found = []
    for index, block in enumerate(pem.certificates(text), 1):
        try:
            found.append(load_pem_x509_certificate(block))
        except ValueError:
            raise settings.error(name, f"certificate {index} in it cannot be read: write it again") from None
    return tuple(found)


def _some(settings: TlsSettings, name: str, certificates: tuple[Certificate, ...]) -> tuple[Certificate, ...]:
    if not certificates:
        raise settings.error(name, "has no certificate: add one")
    return certificates


def _pkcs12_keys(settings: TlsSettings, data: bytes) -> KeyStore:
    store = _pkcs12(settings, "ssl.keystore", data, settings.keystore_password)
    if store.key is None or store.cert is None:
        raise settings.error("ssl.keystore.location", f"{settings.keystore_location} has no private key: add one")
    if settings.key_password not in (None, settings.keystore_password):
        raise settings.error("ssl.key.password", "must be that of ssl.keystore.password for PKCS12: remove it")
    others = (one.certificate for one in store.additional_certs)
    return KeyStore(store.key, _in_order(store.cert.certificate, others))


def _pkcs12(settings: TlsSettings, store: str, data: bytes, password: str | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    path = getattr(settings, f"{store[4:]}_location")
    if not data.startswith(_DER_SEQUENCE):
        raise settings.error(f"{store}.location", f"{path} is not a PKCS12 file: write it again")
    try:
        return load_pkcs12(data, password.encode() if password is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise settings.error(f"{store}.password", f"does not open {path}, or the file is damaged") from None


def _in_order(leaf: Certificate, others: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The leaf, its issuer, and so on; PKCS12 has them in any order. Those that issued nothing here are left out."""
    chain, left = [leaf], list(others)
    while chain[-1].subject != chain[-1].issuer:
        issuer = next((one for one in left if one.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return tuple(chain)
