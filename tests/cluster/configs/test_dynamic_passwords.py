"""Passwords among dynamic configs: the one in force, and changes of the encoder's secret."""

from __future__ import annotations

from typing import Any

from odradek.cluster.configs import configdef, dynamic_passwords
from odradek.security.password_encoder import PasswordEncoder

OLD, NEW = PasswordEncoder("old-secret"), PasswordEncoder("new-secret")
NAME, OTHER = "listener.name.sasl_ssl.plain.sasl.jaas.config", "ssl.key.password"


def config(**changes: str) -> dict[str, Any]:
    found = {name: configdef.broker_default(name) for name in configdef.BROKER}
    return {**found, **{name.replace("_", "."): value for name, value in changes.items()}}


def test_only_passwords_are_encoded() -> None:
    names = {name for name in configdef.BROKER if dynamic_passwords.is_password(name)}
    passwords = {name for name, key in configdef.BROKER.items() if key.sensitive and key.change == "per-broker"}
    assert {name for name in names if not name.startswith(("zookeeper.", "odradek."))} == passwords
    assert "sasl.jaas.config" in names
    assert dynamic_passwords.is_password(NAME)
    assert not dynamic_passwords.is_password("ssl.keystore.location")


def test_decoded_password_is_in_force() -> None:
    own = {NAME: NEW.encode("own"), OTHER: OLD.encode("of another secret"), "max.connections": "5"}
    default = {NAME: NEW.encode("default"), "max.connections": "6"}
    static = {OTHER: "static", NAME: "static"}
    assert dynamic_passwords.settings(static, own, default, NEW) == {
        OTHER: "static",
        NAME: "own",
        "max.connections": "5",
    }
    assert dynamic_passwords.settings(static, own, default, None) == {**static, "max.connections": "5"}
    assert dynamic_passwords.undecodable(own, NEW) == [OTHER]
    assert dynamic_passwords.undecodable(own, None) == sorted([NAME, OTHER])


def test_changed_secret_re_encodes_passwords() -> None:
    new = NEW.encode("newer")
    configs = {NAME: OLD.encode("older"), OTHER: new, "ssl.keystore.key": "garbage", "max.connections": "5"}
    changed = dynamic_passwords.re_encoded(
        configs, config(password_encoder_secret="new-secret", password_encoder_old_secret="old-secret")
    )
    assert NEW.decode(changed.pop(NAME)) == "older"
    assert changed == {OTHER: new, "ssl.keystore.key": "garbage", "max.connections": "5"}
    assert dynamic_passwords.re_encoded(configs, config(password_encoder_secret="new-secret")) == configs


def test_invalid_encoder_settings_are_refused() -> None:
    assert not list(dynamic_passwords.faults(config()))
    (line,) = dynamic_passwords.faults(config(password_encoder_old_secret="x"))
    assert line.startswith("password.encoder.old.secret needs password.encoder.secret")
    (line,) = dynamic_passwords.faults(config(password_encoder_secret="x", password_encoder_cipher_algorithm="ROT13"))
    assert line.startswith("password.encoder.cipher.algorithm: ROT13")
