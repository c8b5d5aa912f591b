"""Who asks for delegation tokens."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.security.principal import Principal
from odradek.workers.dispatch import token_requests
from odradek.workers.dispatch.context import Context


@pytest.mark.parametrize("name", ["alice", "CN=a:b,O=c", ""])
def test_requester_is_the_principal_of_the_connection(name: str) -> None:
    """A certificate without a subject has an empty name."""
    answers: list[Any] = []
    context = Context(41, 3, "c", "127.0.0.1", "SSL", answers.append, principal=str(Principal("User", name)))
    assert token_requests.requester(context) == Principal("User", name)
