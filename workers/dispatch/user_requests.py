"""Shared by the APIs of SCRAM credentials: what users have, read in steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from odradek.security.sasl.scram_admin import Credentials
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import pieces


def known(controller: Controller, users: Sequence[str]) -> Generator[None, None, dict[str, Credentials]]:
    """The credentials of these users, or of all if there are none. ApiError."""
    if not users:
        return controller.owner.users.credentials(None)
    found: dict[str, Credentials] = {}
    for some in pieces(users):
        found |= controller.owner.users.credentials(some)
        yield
    return found
