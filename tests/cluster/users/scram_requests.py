"""Requests of KIP-554 built by hand, and the content of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.protocol.library import message_class
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramMechanism, salted

from ...harness.wire import Wire

SALT = b"0123456789abcdefghijklmnop"
SECRET = "correct horse battery staple"
SALTED = {
    (mechanism.type, iterations): salted(mechanism, Password(SECRET), SALT, iterations)
    for mechanism in ScramMechanism
    for iterations in (4095, 4096, 8192, 16384, 16385)
}


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> Any:
    row = message_class("AlterUserScramCredentialsRequest").ScramCredentialUpsertion
    password = SALTED.get((mechanism, iterations), b"salted password")
    return row(name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=password)


def deletion(user: str, mechanism: int = 1) -> Any:
    row = message_class("AlterUserScramCredentialsRequest").ScramCredentialDeletion
    return row(name=user, mechanism=mechanism)


def alter(wire: Wire, upsertions: Sequence[Any] = (), deletions: Sequence[Any] = ()) -> list[tuple[str, int, Any]]:
    """(user, error code, message) of each result."""
    request = message_class("AlterUserScramCredentialsRequest")
    answer = wire.call(request[0](upsertions=list(upsertions), deletions=list(deletions)))
    return [(result.user, result.error_code, result.error_message) for result in answer.results]


def describe(wire: Wire, users: Sequence[str] | None = None) -> tuple[int, list[Any]]:
    """The error code, and (user, error code, message, credentials) of each result."""
    request = message_class("DescribeUserScramCredentialsRequest")
    named = None if users is None else [request.UserName(name=user) for user in users]
    answer = wire.call(request[0](users=named))
    return answer.error_code, [(row.user, row.error_code, row.error_message, _held(row)) for row in answer.results]


def _held(row: Any) -> list[tuple[int, int]]:
    return [(info.mechanism, info.iterations) for info in row.credential_infos]
