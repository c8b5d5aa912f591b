"""Checks a user's password by the broker's own users: those of PLAIN, and SCRAM credentials. Pure.

Each check does the same steps for users that exist and those that do not: one PLAIN comparison, and one derivation for
each enabled mechanism of SCRAM. That has the iterations of the user's credential, or the least, so it may take longer
for a user that exists; the time of the answer does not show it (readers.FAILED_S). A credential outside of Kafka's
bounds of iterations counts as none, so that no credential makes a check take longer than four times the least.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from odradek.broker.exporter.access.basic import Login
from odradek.security.sasl import scram_keys
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.sasl_settings import SCRAM, Credentials
from odradek.security.sasl.scram_keys import LEAST_ITERATIONS, MOST_ITERATIONS, ScramCredential, ScramMechanism


class Passwords:
    """The users of the enabled mechanisms."""

    def __init__(self, mechanisms: Mapping[str, object], plain_server: PlainServer | None, live: Credentials) -> None:
        """`mechanisms`: the names of the enabled ones are its keys."""
        self._plain = plain_server
        self._scram = [SCRAM[name] for name in mechanisms if name in SCRAM]
        self._live = live

    def match(self, login: Login) -> bool:
        """Whether a user has this password."""
        found = [self._matches_plain(login), *(self._matches_scram(mechanism, login) for mechanism in self._scram)]
        return any(found)

    def _matches_plain(self, login: Login) -> bool:
        if self._plain is None:
            return False
        try:
            self._plain.evaluate(f"\0{login.user}\0{login.password.value}".encode(), 0)
        except MechanismFailure:
            return False
        return True

    def _matches_scram(self, mechanism: ScramMechanism, login: Login) -> bool:
        known = self._live.scram(mechanism, login.user)
        usable = known is not None and LEAST_ITERATIONS <= known.iterations <= MOST_ITERATIONS
        credential = known if known is not None and usable else _decoy(mechanism)
        salted = scram_keys.salted(mechanism, login.password, credential.salt, credential.iterations)
        key = scram_keys.digest(mechanism, scram_keys.client_key(mechanism, salted))
        return hmac.compare_digest(key, credential.stored_key) and usable


def _decoy(mechanism: ScramMechanism) -> ScramCredential:
    """What a user without a credential is compared with."""
    unknown = bytes(mechanism.size)
    return ScramCredential(b"0" * 26, unknown, unknown, LEAST_ITERATIONS)
