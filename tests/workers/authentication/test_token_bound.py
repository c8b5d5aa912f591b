"""A client that requests delegation tokens without end gets a bounded number, and others get theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import NONE, POLICY_VIOLATION
from odradek.protocol.library import message_class

from ...cluster.users.sasl_wire import SaslWire
from .secured_broker import OTHER, OTHER_PASSWORD, PASSWORD, USER, SecuredBroker

pytestmark = pytest.mark.live

BOUND = 100_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    made = SecuredBroker(
        tmp_path,
        delegation_token_secret_key="key-of-tokens-55d0",
        odradek_delegation_tokens_max_bytes=BOUND,
    )
    try:
        yield made.start()  # type: ignore[misc]
    finally:
        made.close()


def request(wire: SaslWire, renewers: int) -> tuple[int, bytes]:
    """The error, and the HMAC."""
    renewer = message_class("CreateDelegationTokenRequest").CreatableRenewers
    names = [renewer(principal_type="User", principal_name=f"renewer-{i}") for i in range(renewers)]
    answer = wire.ask("CreateDelegationToken", 3, renewers=names, max_lifetime_ms=-1)
    return answer.error_code, answer.hmac


def test_greedy_client_gets_an_error_and_harms_no_other(broker: SecuredBroker) -> None:
    alice = SaslWire(broker.address("SASL_PLAINTEXT"), USER, PASSWORD, mechanism="PLAIN")
    bob = SaslWire(broker.address("SASL_PLAINTEXT"), OTHER, OTHER_PASSWORD, mechanism="PLAIN")
    assert request(alice, 10_000)[0] == POLICY_VIOLATION
    answers = [request(alice, 500) for _ in range(20)]
    made = [hmac for error, hmac in answers if error == NONE]
    assert 5 < len(made) < 15 and {error for error, _ in answers} == {NONE, POLICY_VIOLATION}
    assert request(bob, 500)[0] == NONE
    assert alice.ask("ExpireDelegationToken", 2, hmac=made[0], expiry_time_period_ms=-1).error_code == NONE
    assert request(alice, 500)[0] == NONE
    assert broker.log.count("odradek.delegation.tokens.max.bytes") == 1
    alice.close()
    bob.close()
