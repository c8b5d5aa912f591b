"""The authentication of one connection, on the server's side: bytes and a clock in, effects out. No sockets.

As Kafka's SaslServerAuthenticator, with these differences, which give an unauthenticated client less:

- GSSAPI is not supported: its bare first token fails as in Kafka where no listener has enabled it.
- A request other than SaslAuthenticate during the exchange of tokens is answered only where its response is simple
  (SaslHandshake, ApiVersions); the bodies of others are not read.
- A wrong password after SaslHandshake v0 is slow too: Kafka closes such a connection at once.
- Before a mechanism is chosen a frame has at most 64 KiB.

and one that gives more: a re-authentication with a mechanism that is not enabled is answered before it ends.

The effects of a failure: the connection reads no more; after `delay_ms` it gets the response and is closed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol import errors
from odradek.protocol.wire import MALFORMED
from odradek.security.principal import USER, Principal
from odradek.security.sasl.exchange_states import ENDED, Event, State, after
from odradek.security.sasl.mechanism import Identity, MechanismFailure, ServerMechanism, Step
from odradek.security.sasl.sasl_requests import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    NotKafka,
    Request,
    api_versions_error,
    authenticate_response,
    frame,
    handshake_response,
    parse,
    sized,
)  # fmt: skip

MOST_BEFORE_MECHANISM = 1 << 16  # bytes of a frame: a client id and a mechanism of the longest strings
LEAST_BETWEEN_REAUTHENTICATIONS = 1000  # ms
_SIZE = struct.Struct(">i")


class Now(NamedTuple):
    """The time: credentials expire by the wall clock, sessions by the monotonic clock."""

    wall_ms: int
    monotonic_ms: int


@dataclass(frozen=True)
class SaslListener:
    """The state that all exchanges of a listener share."""

    mechanisms: Mapping[str, Callable[[], ServerMechanism]]
    """The enabled ones, in the order of sasl.enabled.mechanisms."""
    api_versions: Callable[[int, int], bytes]
    """The body of ApiVersions' response for (version, error)."""
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: sessions do not end."""
    max_receive: int = 524288
    """sasl.server.max.receive.size"""
    failure_delay_ms: int = 100
    """connection.failed.authentication.delay.ms"""


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated connection."""

    principal: Principal
    mechanism: str
    by_token: bool
    lifetime_ms: int
    """The session lifetime in the last response to the client; 0: the session does not end."""
    expires_ms: int | None
    """By the monotonic clock."""
    client_reauthenticates: bool
    """Whether the client knows of re-authentication."""

    def expired(self, monotonic_ms: int) -> bool:
        """Whether a request must end the connection; SaslHandshake may still renew the session."""
        return self.expires_ms is not None and monotonic_ms > self.expires_ms


class Send(NamedTuple):
    """Send a whole response frame."""

    data: bytes


class Authenticated(NamedTuple):
    """The connection may send requests now, or again."""

    session: Session


class Fail(NamedTuple):
    """After `delay_ms` send the response (none when empty) and close the connection; `reason` is for the log."""

    reason: str
    response: bytes
    delay_ms: int


Effect = Send | Authenticated | Fail


class Exchange:
    """The authentication of one connection, and its re-authentications."""

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self.state = State.INITIAL_REQUEST
        self.session: Session | None = None
        """The last authenticated session; a re-authentication must be of the same principal."""
        self.unread = bytearray()
        """The bytes received after the last frame: requests to the broker, once the state is COMPLETE."""
        self._mechanism: ServerMechanism | None = None
        self._mechanism_name = ""
        self._with_headers = False
        self._client_reauthenticates = False
        self.reauthenticated_ms: int | None = None
        """When the last re-authentication began, by the monotonic clock."""

    @classmethod
    def resumed(cls, listener: SaslListener, session: Session, reauthenticated_ms: int | None) -> Exchange:
        """An exchange that another process has completed with this session."""
        made = cls(listener)
        made.state, made.session, made.reauthenticated_ms = State.COMPLETE, session, reauthenticated_ms
        made._mechanism_name = session.mechanism
        return made

    # -- bytes in

    def receive(self, data: bytes | memoryview, now: Now) -> list[Effect]:
        """Take the frames that `data` completes, up to the end of the exchange."""
        self.unread += data
        effects: list[Effect] = []
        while self.state not in ENDED and len(self.unread) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self.unread)
            if not 0 <= size <= self.most:
                effects.append(self._fail(f"a frame of {size} bytes, where {self.most} are allowed"))
            elif len(self.unread) < _SIZE.size + size:
                break
            else:
                taken = bytes(self.unread[_SIZE.size : _SIZE.size + size])
                del self.unread[: _SIZE.size + size]
                effects += self.on_frame(taken, now)
        return effects

    @property
    def most(self) -> int:
        """The maximum size of the next frame."""
        most = MOST_BEFORE_MECHANISM if self._mechanism is None else self._mechanism.most
        return min(most, self._listener.max_receive)

    def on_frame(self, data: bytes | memoryview, now: Now) -> list[Effect]:
        """Take one frame without its length."""
        if self.state is State.FAILED:
            return []
        if self.state is State.REAUTH_BAD_MECHANISM:
            return [self._fail("re-authentication with another mechanism than the session's")]
        if self.state is State.AUTHENTICATE and not self._with_headers:
            return self._evaluate(bytes(data), now, None)
        try:
            request = parse(memoryview(data))
        except NotKafka:
            return [self._fail("the first bytes are no request: GSSAPI is not supported")]
        except MALFORMED as error:
            return [self._fail(f"malformed request: {error}", delay=False)]
        return self._on_request(request, now)

    def _on_request(self, request: Request, now: Now) -> list[Effect]:
        if self.state is State.AUTHENTICATE:
            if request.key != SASL_AUTHENTICATE:
                return [self._fail_other(request)]
            return self._evaluate(request.message.auth_bytes, now, request)
        if request.key == API_VERSIONS:
            return [self._on_api_versions(request)]
        if request.key == SASL_HANDSHAKE:
            return [self._on_handshake(request)]
        return [self._fail(f"{request.name} before SaslHandshake")]

    # -- before the tokens

    def _on_api_versions(self, request: Request) -> Effect:
        error = api_versions_error(request)
        event = Event.API_VERSIONS_REFUSED if error else Event.API_VERSIONS
        self._move(event)
        if self.state is State.FAILED:
            return self._fail("ApiVersions where SaslHandshake is due", delay=False)
        return Send(self._api_versions(request, error))

    def _api_versions(self, request: Request, error: int) -> bytes:
        version = 0 if request.message is None else request.version
        return frame(request, self._listener.api_versions(version, error))

    def _on_handshake(self, request: Request) -> Effect:
        names = list(self._listener.mechanisms)
        name = request.message.mechanism
        if name not in self._listener.mechanisms:
            response = handshake_response(request, errors.UNSUPPORTED_SASL_MECHANISM, names)
            return self._fail(f"the mechanism {name!r:.100} is not in sasl.enabled.mechanisms", response)
        self._with_headers = self._with_headers or request.version >= 1
        if self._reauthenticating and self.session and self.session.mechanism != name:
            self._move(Event.OTHER_MECHANISM)
        else:
            self._move(Event.HANDSHAKE)
            self._mechanism_name, self._mechanism = name, self._listener.mechanisms[name]()
        return Send(handshake_response(request, errors.NONE, names))

    # -- tokens

    def _evaluate(self, token: bytes, now: Now, request: Request | None) -> list[Effect]:
        """Take a token; a bare one if `request` is None."""
        assert self._mechanism is not None
        if request is not None and request.version > 0:
            self._client_reauthenticates = True
        try:
            step = self._mechanism.evaluate(token, now.wall_ms)
            if step.identity is not None:
                self._check_unchanged(step.identity)
        except MechanismFailure as failure:
            return [self._fail_token(failure, request)]
        return self._stepped(step, now, request)

    def _check_unchanged(self, identity: Identity) -> None:
        if self.session and self.session.principal != Principal(USER, identity.name):
            told = f"re-authentication as another principal than {self.session.principal!s:.1000} is not allowed"
            raise MechanismFailure(told, told)

    def _fail_token(self, failure: MechanismFailure, request: Request | None) -> Fail:
        response = b""
        if request is not None:
            told = failure.told or f"invalid credentials for the mechanism {self._mechanism_name}"
            response = authenticate_response(request, errors.SASL_AUTHENTICATION_FAILED, text=told)
        return self._fail(f"{self._mechanism_name}: {failure.reason}", response)

    def _stepped(self, step: Step, now: Now, request: Request | None) -> list[Effect]:
        if step.identity is None:
            self._move(Event.CHALLENGE)
            return [Send(_token_response(step.token, 0, request))]
        self.session = self._begin_session(step.identity, now)
        self._mechanism = None
        self._move(Event.SUCCESS)
        return [Send(_token_response(step.token, self.session.lifetime_ms, request)), Authenticated(self.session)]

    def _begin_session(self, identity: Identity, now: Now) -> Session:
        name, most = self._mechanism_name, self._listener.max_reauth_ms.get(self._mechanism_name, 0)
        limits = [most] if most > 0 else []
        if identity.expires_ms is not None:
            limits.append(max(identity.expires_ms - now.wall_ms, 0))
        lifetime = min(limits, default=0)
        expires = now.monotonic_ms + lifetime if limits else None
        principal = Principal(USER, identity.name)
        return Session(principal, name, identity.by_token, lifetime, expires, self._client_reauthenticates)

    # -- re-authentication

    def may_reauthenticate(self, now: Now) -> bool:
        """Whether the session ends, and was not renewed within the last second."""
        assert self.state is State.COMPLETE and self.session
        last = self.reauthenticated_ms
        recently = last is not None and now.monotonic_ms - last < LEAST_BETWEEN_REAUTHENTICATIONS
        return self.session.expires_ms is not None and not recently

    def reauthenticate(self, data: bytes | memoryview, now: Now) -> list[Effect] | None:
        """Take a frame with SaslHandshake on an authenticated connection; the next frames then go to `on_frame`.

        None when `may_reauthenticate` says no: then the broker answers the request with ILLEGAL_SASL_STATE.
        """
        if not self.may_reauthenticate(now):
            return None
        self.reauthenticated_ms = now.monotonic_ms
        self._with_headers = False
        self._client_reauthenticates = False
        self._move(Event.REAUTHENTICATE)
        return self.on_frame(data, now)

    @property
    def _reauthenticating(self) -> bool:
        return self.session is not None

    # -- the end

    def _move(self, event: Event) -> None:
        self.state = after(self.state, event)

    def _fail_other(self, request: Request) -> Fail:
        """A request other than SaslAuthenticate while tokens are exchanged."""
        response = b""
        if request.key == API_VERSIONS:
            response = self._api_versions(request, errors.ILLEGAL_SASL_STATE)
        elif request.key == SASL_HANDSHAKE:
            response = handshake_response(request, errors.ILLEGAL_SASL_STATE, [])
        return self._fail(f"{request.name} where SaslAuthenticate is due", response)

    def _fail(self, reason: str, response: bytes = b"", *, delay: bool = True) -> Fail:
        self.state = after(self.state, Event.FAILURE)
        self._mechanism = None
        self.unread = bytearray()
        return Fail(reason, response, self._listener.failure_delay_ms if delay else 0)


def _token_response(token: bytes, lifetime_ms: int, request: Request | None) -> bytes:
    if request is None:
        return sized(token)
    return authenticate_response(request, errors.NONE, token, lifetime_ms=lifetime_ms)
