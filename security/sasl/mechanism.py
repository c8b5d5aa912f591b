"""The interface between the exchange and a mechanism on the server's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class MechanismFailure(Exception):
    """The client is not authenticated.

    `reason` is for the broker's log, `told` for the client: None where the reason would tell which users exist. No
    secret is in either.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated principal."""

    name: str
    expires_ms: int | None = None
    """When the credential expires, by the wall clock."""
    by_token: bool = False
    """Whether by a delegation token, which may not create others."""


class Step(NamedTuple):
    """The mechanism's response: a challenge, or its last message with the identity."""

    token: bytes
    identity: Identity | None = None


class ServerMechanism(Protocol):
    """One authentication with one mechanism."""

    most: int
    """The maximum size of a token of the client, in bytes."""

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Answer the client's token at `now_ms` of the wall clock; raises MechanismFailure, after which it ends."""


def refused(told: str) -> MechanismFailure:
    """A failure whose reason the client may know."""
    return MechanismFailure(told, told)
