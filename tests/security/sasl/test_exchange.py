"""The authentication exchange: its state table, its answers, and arbitrary bytes."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import errors
from odradek.security.principal import Principal
from odradek.security.sasl.exchange import Authenticated, Exchange, Fail, Now, SaslListener, Send
from odradek.security.sasl.exchange_states import ENDED, TRANSITIONS, Event, State, after
from odradek.security.sasl.mechanism import Identity, MechanismFailure, Step

from .frames import (
    api_versions,
    authenticate,
    authenticate_answer,
    handshake,
    handshake_answer,
    head,
    metadata,
    sized,
    the,
)  # fmt: skip

NOW = Now(1_000_000, 5_000)


class Scripted:
    """A mechanism whose tokens select its result."""

    most = 1 << 10

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        if token.startswith(b"more"):
            return Step(b"go on")
        if token.startswith(b"user "):
            _, name, *expires = token.decode().split(" ")
            return Step(b"done", Identity(name, int(expires[0]) if expires else None))
        raise MechanismFailure("a reason for the log", token.decode(errors="replace") or None)


def listener(**more: Any) -> SaslListener:
    settings: dict[str, Any] = {"max_reauth_ms": {}, "failure_delay_ms": 100, "max_receive": 1 << 19} | more
    body = lambda version, error: struct.pack(">hh", version, error)  # noqa: E731
    return SaslListener({"PLAIN": Scripted, "OTHER": Scripted}, body, **settings)


def exchange(*frames: bytes, **more: Any) -> Exchange:
    made = Exchange(listener(**more))
    for frame in frames:
        made.on_frame(frame, NOW)
    return made


def test_table_has_a_row_for_each_state_and_other_events_fail() -> None:
    assert set(TRANSITIONS) == set(State)
    for state, event in itertools.product(State, Event):
        expected = TRANSITIONS[state].get(event, State.FAILED)
        assert after(state, event) is expected
    assert all(Event.FAILURE not in row for row in TRANSITIONS.values())


def test_every_state_is_reachable_and_only_complete_continues() -> None:
    reached, todo = {State.INITIAL_REQUEST}, [State.INITIAL_REQUEST]
    while todo:
        new = {after(state, event) for state, event in itertools.product([todo.pop()], Event)} - reached
        reached |= new
        todo += new
    assert reached == set(State)
    assert TRANSITIONS[State.FAILED] == {} and set(TRANSITIONS[State.COMPLETE]) == {Event.REAUTHENTICATE}


WAYS = {
    State.INITIAL_REQUEST: [],
    State.HANDSHAKE_OR_VERSIONS_REQUEST: [api_versions(9)],
    State.HANDSHAKE_REQUEST: [api_versions(3)],
    State.AUTHENTICATE: [handshake("PLAIN")],
}
SENT = {
    "versions": (api_versions(), Event.API_VERSIONS),
    "versions 0": (api_versions(0), Event.API_VERSIONS),
    "unsupported versions": (api_versions(9), Event.API_VERSIONS_REFUSED),
    "bad software": (api_versions(3, "!"), Event.API_VERSIONS_REFUSED),
    "handshake": (handshake("PLAIN"), Event.HANDSHAKE),
    "unknown mechanism": (handshake("GSSAPI"), Event.FAILURE),
    "challenge": (authenticate(b"more"), Event.CHALLENGE),
    "success": (authenticate(b"user a"), Event.SUCCESS),
    "wrong": (authenticate(b"no"), Event.FAILURE),
    "metadata": (metadata(), Event.FAILURE),
    "gssapi token": (b"\x60\x82\x01\x00\x06\x09", Event.FAILURE),
    "nothing": (b"", Event.FAILURE),
    "cut": (handshake("PLAIN")[:-2], Event.FAILURE),
    "newer handshake": (head(17, 2) + b"\0\5PLAIN", Event.FAILURE),
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("state", WAYS)
def test_each_frame_in_each_state_follows_the_table(state: State, sent: str) -> None:
    made = exchange(*WAYS[state])
    assert made.state is state
    frame, event = SENT[sent]
    effects = made.on_frame(frame, NOW)
    assert made.state is after(state, event)
    failed = [effect for effect in effects if isinstance(effect, Fail)]
    assert bool(failed) == (made.state is State.FAILED)
    assert any(isinstance(effect, Authenticated) for effect in effects) == (made.state is State.COMPLETE)


@pytest.mark.parametrize("sent", SENT)
def test_failed_exchange_sends_no_answer(sent: str) -> None:
    made = exchange(metadata())
    assert made.state is State.FAILED and made.on_frame(SENT[sent][0], NOW) == []


def test_client_authenticates_after_versions_and_handshake() -> None:
    made = exchange()
    (versions,) = made.on_frame(api_versions(3), NOW)
    assert versions == Send(sized(struct.pack(">ihh", 7, 3, 0)))
    shaken = the(Send, made.on_frame(handshake("PLAIN"), NOW))
    assert handshake_answer(shaken.data).mechanisms == ["PLAIN", "OTHER"]
    challenge = the(Send, made.on_frame(authenticate(b"more"), NOW))
    assert authenticate_answer(challenge.data).auth_bytes == b"go on"
    answer, authenticated = made.on_frame(authenticate(b"user alice"), NOW)
    assert isinstance(answer, Send) and isinstance(authenticated, Authenticated)
    assert authenticate_answer(answer.data).session_lifetime_ms == 0
    session = authenticated.session
    assert session.principal == Principal("User", "alice") and session.mechanism == "PLAIN"
    assert session.client_reauthenticates and not session.expired(1 << 60)


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    made = exchange(handshake("PLAIN", 0))
    assert made.on_frame(b"more", NOW) == [Send(sized(b"go on"))]
    answer, authenticated = made.on_frame(b"user bob", NOW)
    assert isinstance(authenticated, Authenticated)
    assert answer == Send(sized(b"done")) and str(authenticated.session.principal) == "User:bob"
    assert not authenticated.session.client_reauthenticates


def test_wrong_bare_token_fails_after_the_delay_without_an_answer() -> None:
    failed = the(Fail, exchange(handshake("PLAIN", 0)).on_frame(b"no", NOW))
    assert failed == Fail("PLAIN: a reason for the log", b"", 100)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("token", [b"", b"told"])
def test_a_wrong_token_is_answered_after_the_delay(token: bytes, version: int) -> None:
    failed = the(Fail, exchange(handshake("PLAIN")).on_frame(authenticate(token, version), NOW))
    answer = authenticate_answer(failed.response, version)
    assert failed.delay_ms == 100 and answer.error_code == errors.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == ("told" if token else "invalid credentials for the mechanism PLAIN")
    assert "log" not in answer.error_message


def test_unknown_mechanism_is_answered_with_the_enabled_ones() -> None:
    failed = the(Fail, exchange().on_frame(handshake("GSSAPI"), NOW))
    answer = handshake_answer(failed.response)
    assert (answer.error_code, answer.mechanisms) == (errors.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "OTHER"])
    assert failed.delay_ms == 100 and "sasl.enabled.mechanisms" in failed.reason


def test_other_request_during_authentication_fails() -> None:
    failed = the(Fail, exchange(handshake("PLAIN")).on_frame(handshake("PLAIN"), NOW))
    assert handshake_answer(failed.response).error_code == errors.ILLEGAL_SASL_STATE
    failed = the(Fail, exchange(handshake("PLAIN")).on_frame(api_versions(2), NOW))
    assert failed.response == sized(struct.pack(">ihh", 7, 2, errors.ILLEGAL_SASL_STATE))
    failed = the(Fail, exchange(handshake("PLAIN")).on_frame(metadata(), NOW))
    assert failed.response == b"" and failed.delay_ms == 100


def test_unsupported_api_versions_are_answered_in_version_0() -> None:
    made = exchange()
    assert made.on_frame(api_versions(9), NOW) == [Send(sized(struct.pack(">ihh", 7, 0, errors.UNSUPPORTED_VERSION)))]
    assert made.on_frame(api_versions(3, "-"), NOW) == [Send(sized(struct.pack(">ihh", 7, 3, errors.INVALID_REQUEST)))]
    assert made.state is State.HANDSHAKE_OR_VERSIONS_REQUEST


def test_malformed_or_unexpected_frame_fails_without_a_delay() -> None:
    for frames in ([handshake("PLAIN")[:-2]], [api_versions(), api_versions()], [head(17, 9)]):
        made = exchange(*frames[:-1])
        assert the(Fail, made.on_frame(frames[-1], NOW)).delay_ms == 0


@pytest.mark.parametrize(
    ("frames", "most"), [([], 1 << 16), ([handshake("PLAIN")], 1 << 10), ([api_versions()], 1 << 16)]
)
def test_too_large_frame_fails_before_its_bytes_arrive(frames: list[bytes], most: int) -> None:
    made = exchange(*frames)
    assert made.receive(struct.pack(">i", most) + b"x", NOW) == []
    for size in (most + 1, -1, 1 << 30):
        failed = the(Fail, exchange(*frames).receive(struct.pack(">i", size), NOW))
        assert isinstance(failed, Fail) and failed.response == b"" and failed.delay_ms == 100


def test_max_receive_size_bounds_frames() -> None:
    assert isinstance(exchange(max_receive=10).receive(sized(handshake("PLAIN")), NOW)[0], Fail)


@given(st.data())
def test_stream_split_anywhere_has_the_same_effects(data: st.DataObject) -> None:
    stream = b"".join(map(sized, [api_versions(), handshake("PLAIN"), authenticate(b"more"), authenticate(b"user a")]))
    stream += b"the rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    made = Exchange(listener())
    effects = [
        effect
        for start, end in itertools.pairwise([0, *cuts, len(stream)])
        for effect in (made.receive(stream[start:end], NOW))
    ]
    assert [type(effect) for effect in effects] == [Send, Send, Send, Send, Authenticated]
    assert bytes(made.unread) == b"the rest"


@given(st.sampled_from([*WAYS.values(), [handshake("PLAIN", 0)]]), st.binary(max_size=80))
def test_any_frame_has_an_effect_and_raises_nothing(way: list[bytes], frame: bytes) -> None:
    effects = exchange(*way).on_frame(frame, NOW)
    assert effects and all(isinstance(each, Send | Fail | Authenticated) for each in effects)


@given(st.sampled_from(list(WAYS.values())), st.sampled_from([frame for frame, _ in SENT.values() if frame]), st.data())
def test_damaged_frame_raises_nothing(way: list[bytes], frame: bytes, data: st.DataObject) -> None:
    made = exchange(*way)
    at = data.draw(st.integers(0, len(frame) - 1))
    made.on_frame(frame[:at] + data.draw(st.binary(max_size=3)) + frame[at + 1 :], NOW)


# -- re-authentication


def session_of(*frames: bytes, **more: Any) -> Exchange:
    made = exchange(handshake("PLAIN"), *(frames or [authenticate(b"user a")]), **more)
    assert made.state is State.COMPLETE
    return made


@pytest.mark.parametrize(
    ("most", "expires", "lifetime"),
    [(0, None, None), (500, None, 500), (0, 300, 300), (500, 300, 300), (200, 300, 200), (500, -5, 0), (0, 0, 0)],
)
def test_session_lifetime_is_the_shorter_of_setting_and_token(
    most: int, expires: int | None, lifetime: int | None
) -> None:
    token = b"user a" + (b"" if expires is None else b" %d" % (NOW.wall_ms + expires))
    session = session_of(authenticate(token), max_reauth_ms={"PLAIN": most}).session
    assert session is not None
    assert session.lifetime_ms == (lifetime or 0)
    assert session.expires_ms == (None if lifetime is None else NOW.monotonic_ms + lifetime)
    if lifetime is not None:
        assert not session.expired(NOW.monotonic_ms + lifetime) and session.expired(NOW.monotonic_ms + lifetime + 1)


def later(ms: int) -> Now:
    return Now(NOW.wall_ms + ms, NOW.monotonic_ms + ms)


def test_session_without_a_lifetime_ignores_re_authentication() -> None:
    assert session_of().reauthenticate(handshake("PLAIN"), later(5000)) is None


def test_re_authentication_extends_the_session() -> None:
    made = session_of(max_reauth_ms={"PLAIN": 500})
    shaken = the(Send, made.reauthenticate(handshake("PLAIN"), later(400)))
    assert handshake_answer(shaken.data).error_code == 0 and made.state is State.AUTHENTICATE
    authenticated = the(Authenticated, made.on_frame(authenticate(b"user a"), later(450)))
    assert authenticated.session.expires_ms == NOW.monotonic_ms + 950
    assert made.reauthenticate(handshake("PLAIN"), later(1399)) is None
    assert made.reauthenticate(handshake("PLAIN"), later(1400)) is not None


def test_re_authentication_as_another_principal_fails() -> None:
    made = session_of(max_reauth_ms={"PLAIN": 500})
    made.reauthenticate(handshake("PLAIN"), later(400))
    failed = the(Fail, made.on_frame(authenticate(b"user b"), later(450)))
    assert authenticate_answer(failed.response).error_code == errors.SASL_AUTHENTICATION_FAILED
    assert made.state is State.FAILED


def test_re_authentication_by_another_mechanism_fails_at_the_next_frame() -> None:
    made = session_of(max_reauth_ms={"PLAIN": 500})
    shaken = the(Send, made.reauthenticate(handshake("OTHER"), later(400)))
    assert handshake_answer(shaken.data).error_code == 0 and made.state is State.REAUTH_BAD_MECHANISM
    failed = the(Fail, made.on_frame(authenticate(b"user a"), later(450)))
    assert failed.response == b"" and failed.delay_ms == 100


def test_re_authentication_by_a_disabled_mechanism_fails_at_once() -> None:
    made = session_of(max_reauth_ms={"PLAIN": 500})
    failed = the(Fail, made.reauthenticate(handshake("GSSAPI"), later(400)))
    assert handshake_answer(failed.response).error_code == errors.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("sent", SENT)
def test_each_frame_during_re_authentication_follows_the_table(sent: str) -> None:
    made = session_of(max_reauth_ms={"PLAIN": 500})
    frame, event = SENT[sent]
    made.reauthenticate(frame, later(400))
    assert made.state is after(State.REAUTH_PROCESS_HANDSHAKE, event)


def test_ended_exchange_leaves_further_bytes_unread() -> None:
    made = Exchange(listener())
    made.receive(sized(handshake("PLAIN")) + sized(authenticate(b"user a")) + sized(metadata()), NOW)
    assert made.state in ENDED and bytes(made.unread) == sized(metadata())
