"""Delegation tokens: permissions, lifetimes, and their nodes in ZooKeeper."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import Error
from odradek.protocol.wire import INT64_MAX
from odradek.security.principal import Principal
from odradek.security.sasl.delegation_tokens import (
    DelegationTokens,
    Token,
    TokenSettings,
    decode,
    encode,
    may_request,
    new_id,
)  # fmt: skip
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramMechanism
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from odradek.workers.dispatch.api import complete

ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
DAY = 86_400_000
NOW = 1_000_000_000


def tokens(**more: Any) -> DelegationTokens:
    return DelegationTokens(TokenSettings(Password("key"), **more))


def created(
    held: DelegationTokens, owner: Principal = ALICE, requester: Principal = ALICE,
    renewers: Iterable[Principal] = (BOB,), lifetime: int = -1,
) -> Token:  # fmt: skip
    answer = held.create(owner, requester, renewers, lifetime, NOW)
    assert answer.error is Error.NONE and answer.written and answer.expiry_ms == answer.written.expiry_ms
    assert held.hmac(answer.written.token_id) and held.expire(owner, held.hmac(answer.written.token_id), -1, NOW).error
    held.put(answer.written)
    return answer.written


@pytest.mark.parametrize(
    ("asked", "most", "expiry"), [(-1, 7 * DAY, DAY), (0, 7 * DAY, DAY), (9 * DAY, 7 * DAY, DAY), (500, 500, 500)]
)
def test_lifetime_of_a_token_is_bounded(asked: int, most: int, expiry: int) -> None:
    token = created(tokens(), lifetime=asked)
    assert (token.issue_ms, token.max_ms, token.expiry_ms) == (NOW, NOW + most, NOW + expiry)


def test_lifetime_for_ever_ends_with_the_largest_time() -> None:
    """A later time does not fit into the answers of DescribeDelegationToken, for any client."""
    token = created(tokens(max_lifetime_ms=INT64_MAX, expiry_time_ms=INT64_MAX), lifetime=INT64_MAX)
    assert (token.max_ms, token.expiry_ms) == (INT64_MAX, INT64_MAX) and not token.expired(NOW)


def test_tokens_of_a_requester_are_bounded_in_bytes() -> None:
    """Whoever owns them; renewed, deleted and expired ones included, each once, and tokens of others not."""
    size = len(encode(created(tokens())))
    held = tokens(most_bytes=3 * size + 20)
    first = created(held)
    second, third = created(held, CAROL), created(held)
    assert held.create(ALICE, ALICE, [BOB], -1, NOW).error is Error.POLICY_VIOLATION
    assert held.create(BOB, ALICE, [], -1, NOW).error is Error.POLICY_VIOLATION
    created(held, ALICE, BOB)
    renewed = held.renew(ALICE, held.hmac(third.token_id), 5000, NOW + 1).written
    assert renewed
    held.put(renewed)
    assert held.create(ALICE, ALICE, [BOB], -1, NOW).error is Error.POLICY_VIOLATION
    held.remove(first.token_id)
    held.remove(first.token_id)
    fourth = created(held)
    assert held.create(ALICE, ALICE, [BOB], -1, NOW).error is Error.POLICY_VIOLATION
    for token in (second, third, fourth):
        held.remove(token.token_id)
    assert held.create(ALICE, ALICE, [BOB] * 200, -1, NOW).error is Error.POLICY_VIOLATION, "one large token"
    for _ in range(3):
        created(held)


def test_token_hmac_is_that_of_kafka() -> None:
    held = tokens()
    token = created(held)
    assert held.hmac(token.token_id) == hmac.new(b"key", token.token_id.encode(), hashlib.sha512).digest()
    assert len(base64.urlsafe_b64decode(new_id() + "==")) == 16 and new_id() != new_id()


def test_tokens_are_disabled_without_a_secret_key() -> None:
    held = DelegationTokens(TokenSettings(None))
    disabled = Error.DELEGATION_TOKEN_AUTH_DISABLED
    assert held.create(ALICE, ALICE, [], -1, NOW).error is disabled
    assert held.renew(ALICE, b"x", -1, NOW).error is disabled
    assert held.expire(ALICE, b"x", -1, NOW).error is disabled
    assert complete(held.describe(ALICE, None)) == (disabled, [])


def test_renewer_that_is_no_user_is_refused() -> None:
    assert tokens().create(ALICE, ALICE, [Principal("Group", "g")], -1, NOW).error is Error.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (ALICE, Error.NONE), (BOB, Error.NONE), (CAROL, Error.DELEGATION_TOKEN_OWNER_MISMATCH),
        (DAVE, Error.DELEGATION_TOKEN_OWNER_MISMATCH),
    ],
)  # fmt: skip
def test_owner_and_renewers_may_renew_and_expire(who: Principal, error: Error) -> None:
    """A requester who is not the owner may not, nor may any other user."""
    held = tokens()
    secret = held.hmac(created(held, requester=CAROL).token_id)
    assert held.renew(who, secret, 5000, NOW + 1).error is error
    assert held.expire(who, secret, -1, NOW + 1).error is error


def test_unknown_hmac_is_refused() -> None:
    held = tokens()
    created(held)
    assert held.renew(ALICE, b"", -1, NOW).error is Error.DELEGATION_TOKEN_NOT_FOUND
    assert held.expire(ALICE, bytes(64), -1, NOW).error is Error.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(("period", "expiry"), [(-1, DAY), (0, 0), (5000, 5000), (99 * DAY, 7 * DAY - 10)])
def test_renewal_is_bounded_by_the_max_lifetime(period: int, expiry: int) -> None:
    held = tokens()
    token = created(held)
    answer = held.renew(BOB, held.hmac(token.token_id), period, NOW + 10)
    assert answer.expiry_ms == NOW + 10 + expiry and answer.written and answer.written.expiry_ms == answer.expiry_ms


def test_an_expired_token_can_only_be_deleted() -> None:
    held = tokens()
    token = created(held)
    secret, late = held.hmac(token.token_id), token.expiry_ms + 1
    assert held.expired(token.expiry_ms) == [] and held.expired(late) == [token.token_id]
    assert held.renew(ALICE, secret, -1, late).error is Error.DELEGATION_TOKEN_EXPIRED
    assert held.expire(ALICE, secret, 5, late).error is Error.DELEGATION_TOKEN_EXPIRED
    assert held.expire(ALICE, secret, -1, late) == (Error.NONE, late, None, token.token_id)
    held.remove(token.token_id)
    assert held.renew(ALICE, secret, -1, late).error is Error.DELEGATION_TOKEN_NOT_FOUND


def test_expire_shortens_the_lifetime() -> None:
    held = tokens()
    token = created(held)
    answer = held.expire(ALICE, held.hmac(token.token_id), 70, NOW + 1)
    assert answer.expiry_ms == NOW + 71 and answer.written and answer.written.expiry_ms == NOW + 71


def test_describe_shows_only_permitted_tokens() -> None:
    held = tokens()
    mine, theirs = created(held, renewers=[BOB]), created(held, owner=CAROL, requester=DAVE, renewers=[])

    def seen(who: Principal, owners: list[Principal] | None = None, **may: Any) -> set[str]:
        error, shown = complete(held.describe(who, None if owners is None else set(owners), **may))
        assert error is Error.NONE and all(secret == held.hmac(token.token_id) for token, secret in shown)
        return {token.token_id for token, _ in shown}

    assert seen(ALICE) == seen(BOB) == {mine.token_id}
    assert seen(CAROL) == seen(DAVE) == {theirs.token_id}
    assert seen(ALICE, [CAROL]) == seen(ALICE, []) == set()
    assert seen(ALICE, None, describable=lambda token_id: True) == {mine.token_id, theirs.token_id}
    assert seen(ALICE, [CAROL], describes_owner=lambda owner: owner == CAROL) == {theirs.token_id}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_token_authenticates_until_it_expires(mechanism: ScramMechanism) -> None:
    held, other_worker = tokens(), tokens()
    token = created(held)
    other_worker.put(decode(encode(token)))
    password = Password(base64.b64encode(held.hmac(token.token_id)).decode())
    store = ScramStore(mechanism, lambda user: None, lambda token_id, now: held.credential(mechanism, token_id, now))
    server, client = ScramServer(store), ScramClient(mechanism, token.token_id, password, token=True)
    proof = client.respond(server.evaluate(client.first(), NOW).token)
    assert proof is not None
    identity = server.evaluate(proof, NOW).identity
    assert identity and (identity.name, identity.expires_ms, identity.by_token) == ("alice", token.expiry_ms, True)
    assert held.credential(mechanism, token.token_id, NOW) == other_worker.credential(mechanism, token.token_id, NOW)
    assert held.credential(mechanism, token.token_id, token.expiry_ms + 1) is None
    held.remove(token.token_id)
    assert held.credential(mechanism, token.token_id, NOW) is None
    held.remove(token.token_id)


@pytest.mark.parametrize(
    ("protocol", "by_token", "anonymous", "may"),
    [
        ("PLAINTEXT", False, True, False), ("SSL", False, True, False), ("SSL", False, False, True),
        ("SASL_SSL", False, False, True), ("SASL_PLAINTEXT", False, False, True), ("SASL_SSL", True, False, False),
    ],
)  # fmt: skip
def test_only_authenticated_connections_may_request_tokens(
    protocol: str, by_token: bool, anonymous: bool, may: bool
) -> None:
    assert may_request(protocol, by_token, anonymous) is may


# -- nodes


def test_token_node_has_kafkas_fields() -> None:
    token = Token("id", Principal("User", "a b*~+é/"), BOB, (CAROL, DAVE), 1, 3, 2)
    assert json.loads(encode(token)) == {
        "version": 3, "owner": "User%3Aa%20b%2A%7E%2B%C3%A9%2F", "tokenRequester": "User%3Abob",
        "renewers": ["User%3Acarol", "User%3Adave"], "issueTimestamp": 1, "maxTimestamp": 3, "expiryTimestamp": 2,
        "tokenId": "id",
    }  # fmt: skip
    assert decode(encode(token)) == token


def test_older_node_takes_the_owner_as_requester() -> None:
    fields = json.loads(encode(Token("id", ALICE, BOB, (), 1, 3, 2)))
    del fields["tokenRequester"]
    fields["version"] = 1
    assert decode(json.dumps(fields).encode()).requester == ALICE


@given(st.text(), st.text(min_size=1), st.lists(st.text(min_size=1)), st.integers(0, 1 << 62))
def test_token_node_round_trip(token_id: str, name: str, renewers: list[str], time: int) -> None:
    principals = tuple(Principal("User", each) for each in renewers)
    token = Token(token_id, Principal("User", name), ALICE, principals, time, 1, 2)
    assert decode(encode(token)) == token


FIELDS = st.sampled_from(["version", "owner", "renewers", "tokenId", "issueTimestamp", "maxTimestamp"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
)


@given(st.binary() | JSON.map(lambda found: json.dumps(found).encode()))
def test_malformed_node_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="as Kafka writes it"):
        decode(data)
