"""Passwords among the dynamic configs of a broker: encoded in the tree and in snapshots, decoded where they are used.

Only the broker itself can decode its own, with `password.encoder.secret`. As in Kafka, a password that cannot be
decoded is left out, and so is one among the cluster-wide defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from odradek.cluster.configs.configtypes import PASSWORD, PER_BROKER
from odradek.cluster.configs.security_configs import SECURITY_CONFIGS
from odradek.security.password_encoder import KEY_FACTORY, PasswordEncoder, PasswordEncoderError

_NAMES = tuple(key.name for key in SECURITY_CONFIGS if key.type == PASSWORD and key.mode == PER_BROKER)


def is_password(name: str) -> bool:
    """Whether Kafka encodes the value of a dynamic broker config with this name."""
    return name.endswith(_NAMES)


def encoder_of(config: Mapping[str, Any]) -> PasswordEncoder | None:
    """The encoder of a broker with this configuration; None without password.encoder.secret."""
    secret = config["password.encoder.secret"]
    return _encoder(secret, config) if secret else None


def _encoder(secret: str, config: Mapping[str, Any]) -> PasswordEncoder:
    return PasswordEncoder(
        secret,
        config["password.encoder.keyfactory.algorithm"] or KEY_FACTORY,
        config["password.encoder.cipher.algorithm"],
        config["password.encoder.key.length"],
        config["password.encoder.iterations"],
    )


def faults(config: Mapping[str, Any]) -> Iterator[str]:
    """A line for each setting with which no password can be encoded."""
    encoder = encoder_of(config)
    try:
        if encoder is not None:
            encoder.check()
    except PasswordEncoderError as error:
        yield str(error)
    if encoder is None and config["password.encoder.old.secret"]:
        yield "password.encoder.old.secret needs password.encoder.secret, the secret that replaces it"


def decoded(configs: Mapping[str, str], encoder: PasswordEncoder | None) -> dict[str, str]:
    """A broker's own dynamic configs with the passwords themselves, without those that cannot be decoded."""
    found = {name: _plain(text, encoder) if is_password(name) else text for name, text in configs.items()}
    return {name: text for name, text in found.items() if text is not None}


def _plain(text: str, encoder: PasswordEncoder | None) -> str | None:
    try:
        return encoder.decode(text) if encoder is not None else None
    except PasswordEncoderError:
        return None


def undecodable(configs: Mapping[str, str], encoder: PasswordEncoder | None) -> list[str]:
    """The names that `decoded` leaves out."""
    return sorted(configs.keys() - decoded(configs, encoder).keys())


def encoded(configs: Mapping[str, str], names: Collection[str], encoder: PasswordEncoder) -> dict[str, str]:
    """`configs` with the passwords in `names` encoded; the others are encoded already."""
    return {name: encoder.encode(text) if name in names else text for name, text in configs.items()}


def settings(
    originals: Mapping[str, str], own: Mapping[str, str], default: Mapping[str, str], encoder: PasswordEncoder | None
) -> dict[str, str]:
    """All settings of a broker as text, those that are in force. `own` and `default`: its layers in a snapshot."""
    shared = {name: text for name, text in default.items() if not is_password(name)}
    return {**originals, **shared, **decoded(own, encoder)}


def re_encoded(configs: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """A broker's own dynamic configs once password.encoder.secret has replaced password.encoder.old.secret.

    What the new secret decodes stays as it is: the old one may be set for longer than one start.
    """
    encoder, old = encoder_of(config), config["password.encoder.old.secret"]
    if encoder is None or not old:
        return dict(configs)
    former = decoded(configs, _encoder(old, config))
    outdated = {name for name in former.keys() - decoded(configs, encoder).keys() if is_password(name)}
    return {**configs, **encoded({name: former[name] for name in outdated}, outdated, encoder)}
