"""The states of the authentication exchange of a connection, on the server's side. A table without sockets.

The names are those of Kafka's SaslServerAuthenticator. In a state, an event that has no row there leads to FAILED; what
the client gets then is decided by the exchange. FAILED is final, COMPLETE as long as the client does not
re-authenticate (KIP-368).
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """The frame that the client must send next."""

    INITIAL_REQUEST = "InitialRequest"  # ApiVersions, SaslHandshake, or a token of GSSAPI without a header
    HANDSHAKE_OR_VERSIONS_REQUEST = "HandshakeOrVersionsRequest"
    HANDSHAKE_REQUEST = "HandshakeRequest"  # ApiVersions has been answered
    AUTHENTICATE = "Authenticate"  # SaslAuthenticate, or a bare token after SaslHandshake v0
    COMPLETE = "Complete"
    FAILED = "Failed"
    REAUTH_PROCESS_HANDSHAKE = "ReauthProcessHandshake"
    REAUTH_BAD_MECHANISM = "ReauthBadMechanism"  # the next frame fails, whatever it is


class Event(enum.Enum):
    """The kind of a received frame."""

    API_VERSIONS = "ApiVersions"
    API_VERSIONS_REFUSED = "ApiVersions refused"  # for its version, or the name of the client's software
    HANDSHAKE = "SaslHandshake"  # with an enabled mechanism
    OTHER_MECHANISM = "SaslHandshake with another mechanism"  # than the session's
    CHALLENGE = "token, challenge follows"
    SUCCESS = "token, authenticated"
    REAUTHENTICATE = "re-authentication"
    FAILURE = "anything else"


_OPENING = {
    Event.API_VERSIONS: State.HANDSHAKE_REQUEST,
    Event.API_VERSIONS_REFUSED: State.HANDSHAKE_OR_VERSIONS_REQUEST,
    Event.HANDSHAKE: State.AUTHENTICATE,
}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.INITIAL_REQUEST: _OPENING,
    State.HANDSHAKE_OR_VERSIONS_REQUEST: _OPENING,
    State.HANDSHAKE_REQUEST: {Event.HANDSHAKE: State.AUTHENTICATE},
    State.AUTHENTICATE: {Event.CHALLENGE: State.AUTHENTICATE, Event.SUCCESS: State.COMPLETE},
    State.COMPLETE: {Event.REAUTHENTICATE: State.REAUTH_PROCESS_HANDSHAKE},
    State.REAUTH_PROCESS_HANDSHAKE: {
        Event.HANDSHAKE: State.AUTHENTICATE,
        Event.OTHER_MECHANISM: State.REAUTH_BAD_MECHANISM,
    },
    State.REAUTH_BAD_MECHANISM: {},
    State.FAILED: {},
}

ENDED = frozenset({State.COMPLETE, State.FAILED})


def after(state: State, event: Event) -> State:
    """The state that follows."""
    return TRANSITIONS[state].get(event, State.FAILED)
