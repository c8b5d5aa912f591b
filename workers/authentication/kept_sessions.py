"""The authenticated session of a SASL_PLAINTEXT connection as fields of a record, for a worker that takes it over.

No password, key or token is among them: an exchange that is complete needs none. Times are of CLOCK_MONOTONIC, which
all processes of a machine share.
"""

from __future__ import annotations

from typing import Any

from odradek.security.principal import Principal
from odradek.security.sasl.exchange import Exchange, SaslListener, Session


def fields(exchange: Exchange | None) -> dict[str, Any] | None:
    """The fields of a complete exchange; None without one."""
    if exchange is None or exchange.session is None:
        return None
    session = exchange.session
    return {
        "mechanism": session.mechanism,
        "lifetime_ms": session.lifetime_ms,
        "expires_ms": session.expires_ms,
        "client_reauthenticates": session.client_reauthenticates,
        "reauthenticated_ms": exchange.reauthenticated_ms,
    }


def exchange_of(listener: SaslListener, kept: dict[str, Any], principal: Principal, by_token: bool) -> Exchange:
    """The exchange of these fields, complete: it may begin again. Raises KeyError."""
    session = Session(
        principal, kept["mechanism"], by_token, kept["lifetime_ms"], kept["expires_ms"], kept["client_reauthenticates"]
    )
    return Exchange.resumed(listener, session, kept["reauthenticated_ms"])
