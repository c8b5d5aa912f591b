"""SCRAM on the client's side: between brokers, and in tools. It checks the server's signature too."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.security.sasl import scram_keys
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism
from odradek.security.sasl.scram_messages import ServerFirst, escaped, server_first, server_signature

_HEADER = "n,,"


@dataclass
class ScramClient:
    """One authentication; `token`: `user` is the id of a delegation token, `password` its HMAC in Base64."""

    mechanism: ScramMechanism
    user: str
    password: Password
    token: bool = False
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(20)
    _own: str = ""
    _expected: bytes = field(default=b"", repr=False)

    def first(self) -> bytes:
        """The first message."""
        self._own = self.nonce()
        return (_HEADER + self._bare()).encode()

    def _bare(self) -> str:
        return f"n={escaped(self.user)},r={self._own}" + ",tokenauth=true" * self.token

    def respond(self, challenge: bytes) -> bytes | None:
        """The proof for the challenge; None when the server has proven itself. Raises MechanismFailure."""
        if self._expected:
            self._check_server(challenge)
            return None
        server = server_first(challenge)
        if not server.nonce.startswith(self._own):
            raise MechanismFailure("the server's nonce does not begin with the client's")
        if not LEAST_ITERATIONS <= server.iterations <= MOST_ITERATIONS:
            raise MechanismFailure(f"the server asks for {server.iterations} iterations")
        return self._prove(server, challenge.decode())

    def _prove(self, server: ServerFirst, challenge: str) -> bytes:
        salted = scram_keys.salted(self.mechanism, self.password, server.salt, server.iterations)
        without_proof = f"c={scram_keys.encode(_HEADER.encode())},r={server.nonce}"
        signed = f"{self._bare()},{challenge},{without_proof}".encode()
        key = scram_keys.client_key(self.mechanism, salted)
        signature = scram_keys.mac(self.mechanism, scram_keys.digest(self.mechanism, key), signed)
        self._expected = scram_keys.mac(self.mechanism, scram_keys.server_key(self.mechanism, salted), signed)
        return f"{without_proof},p={scram_keys.encode(scram_keys.xor(key, signature))}".encode()

    def _check_server(self, token: bytes) -> None:
        if not hmac.compare_digest(server_signature(token), self._expected):
            raise MechanismFailure("the server does not know the password")
