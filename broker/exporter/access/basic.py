"""The header of HTTP Basic (RFC 7617): a user and a password, in UTF-8. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from odradek.security.sasl.password import Password


class Login(NamedTuple):
    """What a client claims."""

    user: str
    password: Password


def parse(header: str) -> Login | None:
    """The login in an Authorization header; None where there is none that could be right."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(" "), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, colon, password = text.partition(":")
    return Login(user, Password(password)) if colon and user and password and "\0" not in text else None
