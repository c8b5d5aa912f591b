"""Each fault in TLS settings is one line that names the setting, before the broker listens."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.security.tls import checks, listener
from odradek.security.tls.settings import TlsError, listener_settings

from .conftest import HOSTS, NOW, NOW_S, Given, private

DAY_S = 24 * 3600


def refused(settings: Any, now: float = NOW_S, **options: Any) -> str:
    with pytest.raises(TlsError) as caught:
        listener.load(settings, now, **options)
    line = str(caught.value)
    assert "\n" not in line and "PRIVATE KEY" not in line
    return line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"keystore_key": None}, "ssl.keystore.certificate.chain: needs ssl.keystore.key too"),
        ({"keystore_certificate_chain": None}, "ssl.keystore.key: needs ssl.keystore.certificate.chain too"),
        ({"keystore_type": "JKS"}, "ssl.keystore.key: needs ssl.keystore.type=PEM, not JKS"),
        ({"keystore_type": "BKS"}, "ssl.keystore.type: must be one of PEM, PKCS12, JKS, not 'BKS'"),
        ({"keystore_location": "x"}, "ssl.keystore.key: cannot be set together with ssl.keystore.location"),
        ({"keystore_password": "x"}, "ssl.keystore.password: cannot be set with ssl.keystore.type=PEM"),
        ({"truststore_password": "x"}, "ssl.truststore.password: cannot be set with ssl.truststore.type=PEM"),
        ({"truststore_certificates": "x"}, "ssl.truststore.certificates: has no certificate: add one"),
        ({"keystore_key": "x"}, "ssl.keystore.key: must hold one private key in PEM, not none"),
        ({"keystore_certificate_chain": "x"}, "ssl.keystore.certificate.chain: has no certificate: add one"),
        ({"enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 is broken: use TLSv1.2 or TLSv1.3"),
        ({"enabled_protocols": "TLSv9"}, "ssl.enabled.protocols: TLSv9 is unknown: use TLSv1.2 or TLSv1.3"),
        ({"enabled_protocols": ""}, "ssl.enabled.protocols: must have one of TLSv1.2, TLSv1.3"),
        ({"protocol": "SSL"}, "ssl.protocol: SSL is unknown or broken: use TLSv1.2 or TLSv1.3"),
        ({"protocol": "TLSv1.2", "enabled_protocols": "TLSv1.3"}, "ssl.protocol: TLSv1.2 is below all of"),
        ({"cipher_suites": "TLS_RSA_WITH_RC4_128_SHA"}, "ssl.cipher.suites: TLS_RSA_WITH_RC4_128_SHA is unknown"),
        (
            {"cipher_suites": "TLS_AES_256_GCM_SHA"},
            "ssl.cipher.suites: TLS_AES_256_GCM_SHA is unknown: use TLS_AES_256",
        ),
        (
            {"cipher_suites": "TLS_AES_256_GCM_SHA384", "enabled_protocols": "TLSv1.2"},
            "ssl.cipher.suites: none of them is of TLSv1.2: change ssl.enabled.protocols",
        ),
        ({"endpoint_identification_algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm: must be https, or em"),
        ({"principal_mapping_rules": "RULE:("}, "ssl.principal.mapping.rules: 'RULE:(' is no rule: write RULE:"),
        ({"client_auth": "required", "truststore_certificates": None}, "ssl.truststore.location: must be set, because"),
        ({"keystore_key": None, "keystore_certificate_chain": None}, "ssl.keystore.location: must be set: a listener"),
    ],
)
def test_inconsistent_settings_are_refused(given: Given, changes: dict[str, Any], line: str) -> None:
    assert refused(given(**changes)).startswith(line)


def test_expired_or_not_yet_valid_certificate_is_refused(given: Given) -> None:
    chain = "ssl.keystore.certificate.chain: CN=broker1"
    assert refused(given(), NOW_S + 91 * DAY_S).startswith(f"{chain} expired on 2027-02-25 00:00 UTC: renew it")
    assert refused(given(), NOW_S - DAY_S).startswith(f"{chain} is not valid before 2026-11-26 23:00 UTC")


def test_trust_store_with_only_expired_certificates_is_refused(given: Given, server: Pair) -> None:
    old = certificates.new_ca(NOW - datetime.timedelta(days=4000))
    line = refused(given(truststore_certificates=old.certificate_pem.decode()))
    assert line.startswith("ssl.truststore.certificates: CN=Odradek CA expired on")


def test_key_of_another_certificate_is_refused(given: Given, alice: Pair) -> None:
    line = refused(given(keystore_key=alice.key_pem.decode()))
    assert line.startswith("ssl.keystore.certificate.chain: the certificate of CN=broker1 is not that of the key in")


def test_incomplete_chain_is_refused(given: Given, server: Pair, alice: Pair) -> None:
    chain = (server.certificate_pem + alice.certificate_pem).decode()
    assert "the chain is not complete: CN=broker1 must be followed by its issuer CN=Odradek CA" in refused(
        given(keystore_certificate_chain=chain)
    )


def encrypted(pair: Pair) -> bytes:
    return pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


def test_missing_or_wrong_key_password_is_refused(given: Given, server: Pair) -> None:
    key = encrypted(server).decode()
    assert listener.load(given(keystore_key=key, key_password="secret"), NOW_S)
    assert refused(given(keystore_key=key)).startswith("ssl.key.password: must be set")
    line = refused(given(keystore_key=key, key_password="wrong"))
    assert line == "ssl.key.password: does not open the key of ssl.keystore.key"


def test_missing_or_unreadable_file_is_refused(in_files: dict[str, Any]) -> None:
    settings = listener_settings(in_files)

    def forbidden(path: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    line = f"ssl.keystore.location: cannot read {settings.keystore_location}: Permission denied"
    assert refused(settings, read=forbidden).startswith(line)
    Path(settings.truststore_location or "").unlink()
    assert refused(settings) == f"ssl.truststore.location: {settings.truststore_location} does not exist"


def test_key_file_readable_by_all_users_is_refused(in_files: dict[str, Any]) -> None:
    path = in_files["ssl.keystore.location"]
    Path(path).chmod(0o644)
    line = f"ssl.keystore.location: the key in {path} can be read by all users: run `chmod o-rwx {path}`"
    assert refused(listener_settings(in_files)) == line
    Path(path).chmod(0o640)
    assert listener.load(listener_settings(in_files), NOW_S)


def test_wrong_store_type_is_refused_with_the_remedy(in_files: dict[str, Any], tmp_path: Path) -> None:
    more = {"ssl.keystore.type": "JKS", "ssl.keystore.password": "x"}
    assert refused(listener_settings(in_files | more)).endswith("is a PEM file: set ssl.keystore.type=PEM")
    more["ssl.keystore.location"] = private(tmp_path / "s.jks", b"\xfe\xed\xfe\xed\0\0\0\2")
    line = refused(listener_settings(in_files | more))
    assert "keytool -importkeystore -srckeystore" in line and "ssl.keystore.type=PKCS12" in line


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_key_store_needs_its_password(
    in_files: dict[str, Any], server: Pair, ca: Pair, tmp_path: Path, kind: str
) -> None:
    """JKS is Kafka's default, and Java reads PKCS12 under that name too."""
    data = pkcs12.serialize_key_and_certificates(
        b"kafka", server.key, server.certificate, [ca.certificate], BestAvailableEncryption(b"secret")
    )
    path = private(tmp_path / "s.p12", data)
    texts = in_files | {"ssl.keystore.type": kind, "ssl.keystore.location": path, "ssl.keystore.password": "secret"}
    assert listener.load(listener_settings(texts), NOW_S).keys.chain == (server.certificate, ca.certificate)
    wrong = refused(listener_settings(texts | {"ssl.keystore.password": "wrong"}))
    assert wrong == f"ssl.keystore.password: does not open {path}, or the file is damaged"
    without = refused(listener_settings(texts | {"ssl.keystore.password": None}))
    assert without == f"ssl.keystore.password: must be set for the key store {path}, or ssl.keystore.type=PEM"


def test_brokers_must_trust_each_other(given: Given) -> None:
    stranger = certificates.new_ca(NOW, "Another CA").certificate_pem.decode()
    settings = given(truststore_certificates=stranger)
    assert listener.load(settings, NOW_S)
    line = refused(settings, inter_broker=True)
    assert line.startswith("ssl.truststore.certificates: brokers cannot connect to each other: ")
    assert listener.load(given(client_auth="required"), NOW_S, inter_broker=True)


def test_expiring_certificate_and_missing_issuer_are_warnings(given: Given, ca: Pair, server: Pair) -> None:
    assert listener.load(given(), NOW_S).warnings == ()
    later = listener.load(given(), NOW_S + 80 * DAY_S)
    assert round(later.days_to_expiry(NOW_S + 80 * DAY_S)) == 10
    assert later.warnings == ("ssl.keystore.certificate.chain: CN=broker1 expires in 10 days: renew it",)
    (alone,) = listener.load(given(truststore_certificates=None), NOW_S).warnings
    assert "no certificate of the issuer CN=Odradek CA" in alone
    assert HOSTS[0] in checks._subject(server.certificate)


def test_pem_in_one_line(given: Given, server: Pair, ca: Pair) -> None:
    """A line of server.properties has spaces in place of newlines."""
    texts = {
        "keystore_key": server.key_pem.decode().replace("\n", " "),
        "keystore_certificate_chain": "Bag: x\n" + (server.certificate_pem + ca.certificate_pem).decode().strip(),
    }
    assert len(listener.load(given(**texts), NOW_S).keys.chain) == 2
