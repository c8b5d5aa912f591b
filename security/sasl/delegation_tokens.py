"""Delegation tokens (KIP-48) as a machine: requests and a clock in, answers and what to write to ZooKeeper out.

Layout, as Kafka's: /delegation_token/tokens/ID has the token as JSON (`encode`, `decode`), without its HMAC, which is
made from the id and delegation.token.secret.key. A change is announced by a sequential node in
/delegation_token/token_changes with the id. A client authenticates by SCRAM with tokenauth=true: the id is the user,
the HMAC in Base64 the password.

Owner: the process with the ZooKeeper session writes `Answer.written`; it and each worker keep a `DelegationTokens`,
which follows the nodes. Crash rule: a token without an announcement is found by the next load.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.protocol.errors import Error
from odradek.protocol.wire import INT64_MAX
from odradek.security import hashes
from odradek.security.principal import USER, Principal
from odradek.security.sanitizer import desanitize, sanitize
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism, derive, salt_of
from odradek.security.sasl.scram_server import TokenCredential

log = logging.getLogger(__name__)

VERSION = 3
TOKENS_PATH = "/delegation_token/tokens"
CHANGES_PATH = "/delegation_token/token_changes"
CHANGE_PREFIX = "token_change_"
_STEP = 256  # tokens
NONE_MS = -1
"""The timestamp of a refused request."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token, without its HMAC."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def concerns(self, principals: AbstractSet[Principal]) -> bool:
        """Whether one of `principals` owns, requested or may renew it."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))

    def renewable_by(self, principal: Principal) -> bool:
        """Whether `principal` may renew and expire it."""
        return principal in (self.owner, *self.renewers)

    def expired(self, now_ms: int) -> bool:
        """Whether it no longer authenticates."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """delegation.token.secret.key, .max.lifetime.ms, .expiry.time.ms; without a key there are no tokens.

    `most_bytes`: of the nodes of all tokens that one principal has requested (odradek.delegation.tokens.max.bytes).
    """

    secret_key: Password | None
    max_lifetime_ms: int = 604800000
    expiry_time_ms: int = 86400000
    most_bytes: int = 16777216


class Answer(NamedTuple):
    """An answer to a request, the token to write, and the id of one to delete."""

    error: Error
    expiry_ms: int = NONE_MS
    written: Token | None = None
    deleted: str | None = None


class DelegationTokens:
    """The known tokens."""

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}  # by a hash of the HMAC
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._nodes: Mapping[str, str] = {}
        self._bytes = Counter[Principal]()  # of nodes, by requester

    @property
    def enabled(self) -> bool:
        """Whether there is a key, without which there are no tokens."""
        return self._settings.secret_key is not None

    # -- what ZooKeeper has

    def follow(self, nodes: Mapping[str, str]) -> None:
        """Replace the known tokens by those of these nodes, by id; a malformed node is logged and skipped."""
        if not self.enabled:
            return
        for token_id in self._nodes.keys() - nodes.keys():
            self.remove(token_id)
        for token_id, text in nodes.items():
            if self._nodes.get(token_id) != text:
                self._read(token_id, text)
        self._nodes = nodes

    def _read(self, token_id: str, text: str) -> None:
        try:
            self.put(decode(text.encode()))
        except ValueError as error:
            log.error("ignoring %s/%s: %s", TOKENS_PATH, token_id, error)

    def put(self, token: Token) -> None:
        """Add a token, or its new expiry."""
        self._account(self._tokens.get(token.token_id), -1)
        self._account(token, 1)
        self._tokens[token.token_id] = token
        self._ids[_hashed(self.hmac(token.token_id))] = token.token_id

    def remove(self, token_id: str) -> None:
        """Forget a token."""
        if token := self._tokens.pop(token_id, None):
            self._account(token, -1)
            del self._ids[_hashed(self.hmac(token_id))]
        for mechanism in ScramMechanism:
            self._credentials.pop((token_id, mechanism), None)

    def _account(self, token: Token | None, sign: int) -> None:
        if token is None:
            return
        self._bytes[token.requester] += sign * len(encode(token))
        if not self._bytes[token.requester]:
            del self._bytes[token.requester]

    def hmac(self, token_id: str) -> bytes:
        """The token's secret."""
        assert self._settings.secret_key, "delegation.token.secret.key is not set"
        key = self._settings.secret_key.value.encode()
        return hashes.mac("sha512", key, token_id.encode("utf-8", "surrogatepass"))

    def credential(self, mechanism: ScramMechanism, token_id: str, now_ms: int) -> TokenCredential | None:
        """The credential that SCRAM checks; derived at first use, with the same salt in all workers."""
        token = self._tokens.get(token_id)
        if token is None or token.expired(now_ms):
            return None
        key = token_id, mechanism
        if key not in self._credentials:
            secret = self.hmac(token_id)
            salt = salt_of(hashes.mac("sha512", secret, mechanism.value.encode()))
            self._credentials[key] = derive(mechanism, Password(base64.b64encode(secret).decode()), salt=salt)
        return TokenCredential(token.owner.name, token.expiry_ms, self._credentials[key])

    # -- requests: they change nothing here before the tree has the change (`follow`)

    def create(
        self, owner: Principal, requester: Principal, renewers: Iterable[Principal], max_lifetime_ms: int, now_ms: int
    ) -> Answer:
        """CreateDelegationToken; what the requester may is checked before.

        POLICY_VIOLATION if the tokens that the requester has would exceed `most_bytes`: Kafka has no bound, and all
        brokers and workers keep all tokens.
        """
        settings, renewers = self._settings, tuple(renewers)
        if any(renewer.type != USER for renewer in renewers):
            return Answer(Error.INVALID_PRINCIPAL_TYPE)
        if settings.secret_key is None:
            return Answer(Error.DELEGATION_TOKEN_AUTH_DISABLED)
        most = settings.max_lifetime_ms
        max_ms = min(INT64_MAX, now_ms + (min(max_lifetime_ms, most) if max_lifetime_ms > 0 else most))
        expiry = min(max_ms, now_ms + settings.expiry_time_ms)
        token = Token(new_id(), owner, requester, renewers, now_ms, max_ms, expiry)
        if self._bytes[requester] + len(encode(token)) > settings.most_bytes:
            return Answer(Error.POLICY_VIOLATION)
        return Answer(Error.NONE, token.expiry_ms, written=token)

    def renew(self, principal: Principal, given: bytes, period_ms: int, now_ms: int) -> Answer:
        """RenewDelegationToken; a negative period is delegation.token.expiry.time.ms."""
        token = self._check(principal, given)
        if isinstance(token, Answer):
            return token
        return self._expire_in(token, self._settings.expiry_time_ms if period_ms < 0 else period_ms, now_ms)

    def expire(self, principal: Principal, given: bytes, period_ms: int, now_ms: int) -> Answer:
        """ExpireDelegationToken; a negative period deletes the token at once, even an expired one."""
        token = self._check(principal, given)
        if isinstance(token, Answer):
            return token
        if period_ms < 0:
            return Answer(Error.NONE, now_ms, deleted=token.token_id)
        return self._expire_in(token, period_ms, now_ms)

    def describe(
        self, principal: Principal, owners: AbstractSet[Principal] | None,
        describable: Callable[[str], bool] = lambda token_id: False,
        describes_owner: Callable[[Principal], bool] = lambda owner: False,
    ) -> Generator[None, None, tuple[Error, list[tuple[Token, bytes]]]]:  # fmt: skip
        """DescribeDelegationToken, in steps: tokens with their HMACs, of `owners` if given.

        `describable` and `describes_owner` ask the authorizer whether `principal` may describe the token, or those of
        its owner.
        """
        if self._settings.secret_key is None:
            return Error.DELEGATION_TOKEN_AUTH_DISABLED, []
        own, known, shown = frozenset([principal]), list(self._tokens.values()), []
        for at in range(0, len(known), _STEP):
            asked = [each for each in known[at : at + _STEP] if owners is None or each.concerns(owners)]
            shown += [
                (each, self.hmac(each.token_id)) for each in asked
                if each.concerns(own) or describable(each.token_id) or describes_owner(each.owner)
            ]  # fmt: skip
            yield
        return Error.NONE, shown

    def expired(self, now_ms: int) -> list[str]:
        """The ids of tokens to delete, each delegation.token.expiry.check.interval.ms."""
        return [token.token_id for token in self._tokens.values() if token.expired(now_ms)]

    def _check(self, principal: Principal, given: bytes) -> Token | Answer:
        """The token with the HMAC `given`, or the error why `principal` may not change it."""
        if self._settings.secret_key is None:
            return Answer(Error.DELEGATION_TOKEN_AUTH_DISABLED)
        token = self._tokens.get(self._ids.get(_hashed(given), ""))
        if token is None:
            return Answer(Error.DELEGATION_TOKEN_NOT_FOUND)
        return token if token.renewable_by(principal) else Answer(Error.DELEGATION_TOKEN_OWNER_MISMATCH)

    def _expire_in(self, token: Token, period_ms: int, now_ms: int) -> Answer:
        if token.expired(now_ms):
            return Answer(Error.DELEGATION_TOKEN_EXPIRED)
        renewed = replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))
        return Answer(Error.NONE, renewed.expiry_ms, written=renewed)


def may_request(protocol: str, by_token: bool, anonymous: bool) -> bool:
    """Whether a connection may make requests about tokens at all, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""
    return not by_token and protocol != "PLAINTEXT" and not (protocol == "SSL" and anonymous)


def new_id() -> str:
    """A token id as Kafka makes them: 16 bytes in Base64 for URLs."""
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


def encode(token: Token) -> bytes:
    """The content of the token's node."""
    return json.dumps({
        "version": VERSION,
        "owner": sanitize(str(token.owner)),
        "tokenRequester": sanitize(str(token.requester)),
        "renewers": [sanitize(str(renewer)) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }, separators=(",", ":")).encode()  # fmt: skip


def decode(data: bytes) -> Token:
    """A token from its node; ValueError if it is none, or of a version that is not known."""
    try:
        fields = json.loads(data)
        version = fields["version"]
        if version not in (1, 2, VERSION):
            raise ValueError(f"version {version!r:.20}")
        owner = _principal(fields["owner"])
        requester = _principal(fields["tokenRequester"]) if version >= VERSION else owner
        renewers = tuple(map(_principal, fields["renewers"]))
        times = [int(fields[name + "Timestamp"]) for name in ("issue", "max", "expiry")]
        return Token(str(fields["tokenId"]), owner, requester, renewers, *times)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"a delegation token's node must be as Kafka writes it: {error!r:.200}") from None


def _principal(text: str) -> Principal:
    kind, _, name = desanitize(text).partition(":")
    return Principal(kind, name)  # a renewer may have an empty name, as in Kafka


def _hashed(given: bytes) -> bytes:
    """The key for an HMAC look-up, hashed so that the time of the look-up reveals no part of the HMAC."""
    return hashes.digest("sha256", given)
