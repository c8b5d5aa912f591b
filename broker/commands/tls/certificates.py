"""Keys and certificates in memory: a CA, and what it signs for brokers and clients."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
_EARLIER = datetime.timedelta(hours=1)  # for peers whose clocks are late
_CLIENT = [ExtendedKeyUsageOID.CLIENT_AUTH]
_BROKER = [ExtendedKeyUsageOID.SERVER_AUTH, *_CLIENT]  # to other brokers, a broker is a client


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: Certificate

    @property
    def key_pem(self) -> bytes:
        """The key as PKCS #8, which Java needs."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def common_name(self) -> str:
        """Whose certificate it is."""
        value = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return value if isinstance(value, str) else value.decode()


def load(pem: bytes) -> Pair:
    """The pair in a file that has both. Raises ValueError."""
    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("its key is not one that `odradek tls init` made")
    return Pair(key, x509.load_pem_x509_certificate(pem))


def new_ca(now: datetime.datetime, name: str = "Odradek CA") -> Pair:
    """A CA with a key of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Pair(key, _ca_certificate(key, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), now))


def extend_ca(ca: Pair, now: datetime.datetime) -> Pair:
    """The same CA with more time; what it signed stays valid under either certificate."""
    return replace(ca, certificate=_ca_certificate(ca.key, ca.certificate.subject, now))


def _ca_certificate(key: ec.EllipticCurvePrivateKey, name: x509.Name, now: datetime.datetime) -> Certificate:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # to sign certificates and CRLs
    builder = (
        _builder(key.public_key(), name, name, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return builder.sign(key, hashes.SHA256())


def issue(ca: Pair, name: str, hostnames: Iterable[str], now: datetime.datetime, days: int) -> Pair:
    """A certificate with a new key: of a broker when there are `hostnames`, else of a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    alternative = [_general_name(hostname) for hostname in hostnames]
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # to sign handshakes
    signer = ca.key.public_key()
    builder = (
        _builder(key.public_key(), subject, ca.certificate.subject, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(_BROKER if alternative else _CLIENT), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    return Pair(key, builder.sign(ca.key, hashes.SHA256()))


def hostnames_of(certificate: Certificate) -> list[str]:
    """The names and addresses of a broker; none of a client."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _builder(
    key: ec.EllipticCurvePublicKey, subject: x509.Name, issuer: x509.Name, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _general_name(hostname: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(hostname))
    except ValueError:
        return x509.DNSName(hostname)
