"""Principals as text."""

from __future__ import annotations

import pytest

from odradek.security.principal import ANONYMOUS, Principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a:b,O=c", "Group:x"])
def test_principal_round_trip(text: str) -> None:
    assert str(Principal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_malformed_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        Principal.parse(text)


def test_anonymous_principal_is_that_of_kafka() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
