"""The settings that apply to a listener."""

from __future__ import annotations

import pytest

from odradek.security.tls.settings import TlsError, listener_settings


def test_listener_setting_overrides_the_general_one() -> None:
    texts = {"ssl.keystore.type": "PEM", "listener.name.internal.ssl.keystore.type": "PKCS12"}
    assert listener_settings(texts, "INTERNAL").keystore_type == "PKCS12"
    assert listener_settings(texts, "EXTERNAL").keystore_type == "PEM"
    assert listener_settings(texts).keystore_type == "PEM"


def test_key_is_named_as_it_is_written() -> None:
    texts = {"ssl.protocol": "TLSv1.2", "listener.name.internal.ssl.keystore.type": "PKCS12"}
    settings = listener_settings(texts, "INTERNAL")
    assert settings.key("ssl.keystore.type") == "listener.name.internal.ssl.keystore.type"
    assert settings.key("ssl.protocol") == "ssl.protocol"


def test_defaults_are_kafkas() -> None:
    settings = listener_settings({"ssl.keystore.location": None})
    assert settings.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert (settings.keystore_type, settings.client_auth, settings.protocol) == ("JKS", "none", "TLSv1.3")
    assert settings.keystore_location is None and settings.cipher_suites == ()


def test_values_may_be_typed_or_strings() -> None:
    assert listener_settings({"ssl.cipher.suites": " a , b "}).cipher_suites == ("a", "b")
    assert listener_settings({"ssl.cipher.suites": ["a", "b"]}).cipher_suites == ("a", "b")
    assert listener_settings({"ssl.allow.dn.changes": True}).allow_dn_changes
    assert not listener_settings({"ssl.allow.dn.changes": "false"}).allow_dn_changes


def test_unknown_client_auth_is_refused() -> None:
    with pytest.raises(TlsError, match=r"^listener.name.x.ssl.client.auth: must be one of none, requested, required"):
        listener_settings({"listener.name.x.ssl.client.auth": "yes"}, "X")


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(listener_settings({"ssl.key.password": "secret"}))
