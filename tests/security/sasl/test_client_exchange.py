"""The SASL client against our server, and against answers that no server sends."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.client_exchange import AuthenticationError, ClientExchange, ClientMechanism
from odradek.security.sasl.exchange import Authenticated, Effect, Exchange, Fail, Now, SaslListener, Send
from odradek.security.sasl.mechanism import ServerMechanism
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramMechanism, derive
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens

from .bearer import CLAIMS, NOW_MS, unsecured
from .frames import the

NOW = Now(NOW_MS, 0)
USERS = {mechanism: {"alice": derive(mechanism, Password("secret"))} for mechanism in ScramMechanism}


def scram(mechanism: ScramMechanism) -> Callable[[], ScramServer]:
    store = ScramStore(mechanism, USERS[mechanism].get)
    return lambda: ScramServer(store)


SERVERS: dict[str, Callable[[], ServerMechanism]] = {
    "PLAIN": lambda: PlainServer({"alice": Password("secret")}),
    "OAUTHBEARER": lambda: OAuthBearerServer(UnsecuredTokens()),
    **{mechanism.value: scram(mechanism) for mechanism in ScramMechanism},
}
LISTENER = SaslListener(SERVERS, lambda version, error: b"", {"PLAIN": 5000})


def client(name: str, secret: str = "secret") -> ClientMechanism:
    if name == "PLAIN":
        return PlainClient("alice", Password(secret))
    if name == "OAUTHBEARER":
        return OAuthBearerClient(Password(unsecured(CLAIMS) if secret == "secret" else secret))
    return ScramClient(ScramMechanism(name), "alice", Password(secret))


def talk(mine: ClientExchange, theirs: Exchange) -> Effect | None:
    """Complete the exchange; the last effect of the server."""
    effect: Effect | None = None
    request: bytes | None = mine.start()
    while request is not None:
        effects = theirs.receive(request, NOW)
        effect = effects[-1]
        assert isinstance(effects[0], Send | Fail)
        sent = effects[0].response if isinstance(effects[0], Fail) else effects[0].data
        request = mine.receive(sent[4:])
    return effect


@pytest.mark.parametrize("name", SERVERS)
def test_client_authenticates_by_each_mechanism(name: str) -> None:
    mine, theirs = ClientExchange(name, client(name), "broker-1"), Exchange(LISTENER)
    effect = talk(mine, theirs)
    assert isinstance(effect, Authenticated) and mine.complete and effect.session.principal.name == "alice"
    assert mine.lifetime_ms == effect.session.lifetime_ms == {"PLAIN": 5000, "OAUTHBEARER": 600_000}.get(name, 0)


@pytest.mark.parametrize("name", SERVERS)
def test_wrong_secret_is_refused_and_not_shown(name: str) -> None:
    mine = ClientExchange(name, client(name, "hunter2"))
    with pytest.raises(AuthenticationError, match="error 58") as caught:
        talk(mine, Exchange(LISTENER))
    assert not mine.complete and "hunter2" not in str(caught.value)


def test_mechanism_that_is_not_enabled_is_an_error() -> None:
    with pytest.raises(AuthenticationError, match="X is not enabled, but PLAIN"):
        talk(ClientExchange("X", client("PLAIN")), Exchange(LISTENER))


@given(st.binary(max_size=60), st.integers(0, 2))
def test_any_answer_is_accepted_or_refused(data: bytes, step: int) -> None:
    mine, theirs = ClientExchange("SCRAM-SHA-256", client("SCRAM-SHA-256")), Exchange(LISTENER)
    request: bytes | None = mine.start()
    for _ in range(step):
        assert request is not None
        request = mine.receive(the(Send, theirs.receive(request, NOW)).data[4:])
    for answer in (data, struct.pack(">i", step) + data):
        try:
            mine.receive(answer)
        except AuthenticationError:
            pass
    assert not mine.complete
