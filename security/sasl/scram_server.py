"""SCRAM-SHA-256 and SCRAM-SHA-512 on the server's side, for users and delegation tokens (tokenauth=true, KIP-48).

A user that does not exist gets a challenge like any other and fails with its proof: salt and iterations are made from
its name and a key of the cluster, so that they are the same whenever and wherever it is tried. Kafka fails at the first
message. The server itself computes only a few hashes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.security import hashes
from odradek.security.sasl import scram_keys
from odradek.security.sasl.mechanism import Identity, MechanismFailure, Step, refused
from odradek.security.sasl.scram_keys import LEAST_ITERATIONS, ScramCredential, ScramMechanism
from odradek.security.sasl.scram_messages import ClientFirst, ServerFirst, client_final, client_first

MOST = 1 << 16  # bytes of a token
TOKENAUTH = "tokenauth"


class TokenCredential(NamedTuple):
    """The credential of a delegation token, and the principal that it authenticates."""

    owner: str
    expires_ms: int
    credential: ScramCredential


@dataclass(frozen=True)
class ScramStore:
    """Looks up the credentials of a mechanism for a listener."""

    mechanism: ScramMechanism
    user: Callable[[str], ScramCredential | None]
    token: Callable[[str, int], TokenCredential | None] = lambda token_id, now_ms: None
    """By token id, at a time of the wall clock; None when it has expired."""
    decoy_key: Callable[[], bytes] = field(default_factory=lambda: random_key())
    """Secret, and the same in all workers of a cluster."""
    decoy_iterations: int = LEAST_ITERATIONS

    def decoy(self, name: str) -> ScramCredential:
        """The credential of a user that does not exist: no password fits."""
        made = hashes.mac("sha512", self.decoy_key(), name.encode("utf-8", "surrogatepass"))
        unknown = bytes(self.mechanism.size)
        return ScramCredential(scram_keys.salt_of(made), unknown, unknown, self.decoy_iterations)


def random_key() -> Callable[[], bytes]:
    """A random key for one process."""
    key = os.urandom(32)
    return lambda: key


def _new_nonce() -> str:
    return base64.urlsafe_b64encode(os.urandom(20)).decode().rstrip("=")


class ScramServer:
    """One authentication: two tokens."""

    most = MOST

    def __init__(self, store: ScramStore, nonce: Callable[[], str] = _new_nonce) -> None:
        self._store = store
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._challenge = ServerFirst("", b"", 0)
        self._credential = store.decoy("")
        self._identity: Identity | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Answer the first message with the challenge, the second with the server's signature."""
        if self._first is None:
            return self._begin(client_first(token), now_ms)
        return self._finish(self._first, token)

    def _begin(self, first: ClientFirst, now_ms: int) -> Step:
        if first.authzid not in ("", first.user):
            raise refused("an authorization id other than the user is not allowed")
        self._identity, self._credential = self._look_up(first, now_ms)
        if self._credential.iterations < LEAST_ITERATIONS:
            raise MechanismFailure(f"a credential has fewer than {LEAST_ITERATIONS} iterations")
        self._first = first
        self._challenge = ServerFirst(
            first.nonce + self._nonce(), self._credential.salt, self._credential.iterations
        )  # fmt: skip
        return Step(str(self._challenge).encode())

    def _look_up(self, first: ClientFirst, now_ms: int) -> tuple[Identity | None, ScramCredential]:
        decoy = self._store.decoy(first.user)
        if first.extensions.get(TOKENAUTH, "").lower() == "true":
            token = self._store.token(first.user, now_ms)
            return (Identity(token.owner, token.expires_ms, True), token.credential) if token else (None, decoy)
        known = self._store.user(first.user)
        return (Identity(first.user), known) if known else (None, decoy)

    def _finish(self, first: ClientFirst, token: bytes) -> Step:
        final = client_final(token)
        # Older versions of librdkafka put their own before it, and Kafka takes it.
        if not final.nonce.endswith(self._challenge.nonce):
            raise MechanismFailure("the nonce is not the challenge's")
        signed = f"{first.bare},{self._challenge},{final.without_proof}".encode()
        mechanism, credential = self._store.mechanism, self._credential
        proven = self._proves(final.proof, signed)
        signature = scram_keys.mac(mechanism, credential.server_key, signed)
        if not proven or self._identity is None:
            raise MechanismFailure("wrong user or password")
        return Step(f"v={scram_keys.encode(signature)}".encode(), self._identity)

    def _proves(self, proof: bytes, signed: bytes) -> bool:
        """Whether the client has the key whose hash is stored."""
        mechanism, stored = self._store.mechanism, self._credential.stored_key
        if len(proof) != mechanism.size:
            return False
        client_key = scram_keys.xor(proof, scram_keys.mac(mechanism, stored, signed))
        return hashes.are_equal(scram_keys.digest(mechanism, client_key), stored)
