"""Passwords encoded in Kafka's format: Apache Kafka's own class and ours decode what the other encodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from odradek.security import password_encoder
from odradek.security.password_encoder import CIPHERS, PasswordEncoder, PasswordEncoderError

from .sasl.oracle_of_sasl import Oracle, Refused, unhex

SECRET = "encoder-secret-ä"
PASSWORDS = ("", "x", "sixteen letters!", "a,b:c=d;\n", "ä€\U0001f600", "-----BEGIN KEY-----\n" * 200)
ORACLE = Path(__file__).with_name("java") / "PasswordOracle.java"


@pytest.mark.parametrize(("cipher", "length"), list(product(CIPHERS, (128, 192, 256))))
def test_password_round_trip(cipher: str, length: int) -> None:
    encoder = PasswordEncoder(SECRET, "PBKDF2WithHmacSHA256", cipher, length, 1024)
    encoder.check()
    for password in PASSWORDS:
        text = encoder.encode(password)
        assert PasswordEncoder(SECRET).decode(text) == password, "the text names its own parameters"
        assert encoder.encode(password) != text, "each encoding has its own salt"


def test_decoding_with_another_secret_fails() -> None:
    text = PasswordEncoder(SECRET).encode("a password of some length")
    with pytest.raises(PasswordEncoderError, match=r"another password\.encoder\.secret"):
        PasswordEncoder("wrong").decode(text)


TEXT = PasswordEncoder(SECRET).encode("password")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "password",
        ",:,",
        TEXT[:-5],
        TEXT.replace("iterations:4096", "iterations:2000000000"),
        TEXT.replace("iterations:4096", "iterations:-1"),
        TEXT.replace("keyLength:128", "keyLength:136"),
        TEXT.replace("keyLength:128", "keyLength:0"),
        TEXT.replace("passwordLength:8", "passwordLength:9"),
        TEXT.replace("AES/CBC/PKCS5Padding", "AES/ECB/PKCS5Padding"),
        TEXT.replace("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        TEXT.replace("salt:", "salt:*"),
    ],
)
def test_malformed_text_is_refused_without_the_secret(text: str) -> None:
    with pytest.raises(PasswordEncoderError) as error:
        PasswordEncoder(SECRET).decode(text)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("encoder", "key"),
    [
        (PasswordEncoder("s", key_factory="PBKDF2WithHmacMD5"), "password.encoder.keyfactory.algorithm"),
        (PasswordEncoder("s", cipher="DES/CBC/PKCS5Padding"), "password.encoder.cipher.algorithm"),
        (PasswordEncoder("s", key_length=64), "password.encoder.key.length"),
        (PasswordEncoder("s", iterations=password_encoder.MOST_ITERATIONS + 1), "password.encoder.iterations"),
    ],
)
def test_error_names_the_setting_that_cannot_encode(encoder: PasswordEncoder, key: str) -> None:
    with pytest.raises(PasswordEncoderError, match=key):
        encoder.check()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle(ORACLE)
    yield oracle
    oracle.close()


FACTORIES = ("PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA512")


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(("factory", "cipher", "length"), list(product(FACTORIES, CIPHERS, ("128", "256"))))
def test_apache_decodes_ours_and_we_decode_theirs(oracle: Oracle, factory: str, cipher: str, length: str) -> None:
    words = (factory, cipher, length, "1024")
    encoder = PasswordEncoder(SECRET, factory, cipher, int(length), 1024)
    for password in PASSWORDS:
        theirs = unhex(oracle.ask("encode", SECRET.encode(), password.encode(), *words)[0])
        assert PasswordEncoder(SECRET).decode(theirs) == password
        ours = encoder.encode(password)
        assert unhex(oracle.ask("decode", SECRET.encode(), ours.encode(), *words)[0]) == password
        assert fields(ours) == fields(theirs)


def fields(text: str) -> set[str]:
    return {pair.partition(":")[0] for pair in text.split(",")}


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_defaults_are_those_of_apache(oracle: Oracle) -> None:
    default = PasswordEncoder(SECRET)
    words = ("-", default.cipher, str(default.key_length), str(default.iterations))
    theirs = unhex(oracle.ask("encode", SECRET.encode(), b"p", *words)[0])
    assert f"keyFactoryAlgorithm:{default.key_factory}" in theirs.split(",")
    with pytest.raises(Refused, match="could not be decoded"):
        oracle.ask("decode", b"another", default.encode("a password of some length").encode(), *words)
