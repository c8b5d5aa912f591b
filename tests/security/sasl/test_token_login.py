"""The time at which a client fetches its next bearer token: sasl.login.refresh.* and sasl.login.retry.backoff.*."""

from __future__ import annotations

import pytest

from odradek.security.sasl.bearer_tokens import TokenRefused
from odradek.security.sasl.password import Password
from odradek.security.sasl.token_endpoint import LoginToken
from odradek.security.sasl.token_login import RefreshWindow, TokenLogin

NOW = 1_700_000_000_000
MINUTE = 60_000


def token(lives_ms: int, age_ms: int = 0, text: str = "t") -> LoginToken:
    return LoginToken(Password(text), "broker", NOW + lives_ms, NOW - age_ms)


def due(found: LoginToken, part: float = 0.0) -> int:
    """Minutes until the next fetch, with the default settings."""
    return (RefreshWindow(part=lambda: part).due_ms(found, NOW) - NOW) // MINUTE


def test_refresh_window_is_that_of_kafka() -> None:
    assert due(token(100 * MINUTE)) == 80
    assert due(token(100 * MINUTE), 1.0) == 85
    assert due(token(50 * MINUTE, age_ms=50 * MINUTE)) == 30, "80 % of the whole lifetime"
    assert due(token(10 * MINUTE)) == 5, "the buffer before the expiry"
    assert due(token(10 * MINUTE, age_ms=90 * MINUTE)) == 1, "not before the minimum period"
    assert due(token(5 * MINUTE)) == 4, "the lifetime is too short for buffer and minimum period"
    assert due(LoginToken(Password("t"), "b", NOW + 100 * MINUTE, None)) == 80, "without iat the lifetime begins now"


def test_next_token_is_due_before_the_expiry_and_replaces_the_first() -> None:
    login = TokenLogin(RefreshWindow(part=lambda: 0.0))
    assert login.due(NOW) and login.token(NOW) is None
    login.store(token(100 * MINUTE), NOW)
    assert not login.due(NOW + 80 * MINUTE - 1) and login.due(NOW + 80 * MINUTE)
    assert login.token(NOW + 100 * MINUTE - 1) == Password("t")
    login.store(token(200 * MINUTE, text="next"), NOW + 80 * MINUTE)
    assert login.token(NOW + 100 * MINUTE) == Password("next")


def test_expired_token_is_not_used() -> None:
    login = TokenLogin(RefreshWindow())
    login.store(token(MINUTE), NOW)
    assert login.token(NOW + MINUTE) is None
    with pytest.raises(TokenRefused, match="expired"):
        login.store(token(MINUTE), NOW + MINUTE)


def test_failed_fetch_is_retried_with_a_back_off() -> None:
    login = TokenLogin(RefreshWindow(), 100, 1000)
    pauses = []
    for _ in range(6):
        login.failed(NOW, lasting=False)
        pauses.append(next(ms for ms in range(0, 1100, 50) if login.due(NOW + ms)))
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    login.store(token(100 * MINUTE), NOW)
    login.failed(NOW, lasting=False)
    assert login.due(NOW + 100) and login.token(NOW) == Password("t")
    login.store(token(100 * MINUTE), NOW)
    login.failed(NOW, lasting=True)
    assert not login.due(NOW + 999) and login.due(NOW + 1000)
