"""Many events are logged in a few lines, with a count."""

from __future__ import annotations

import logging

import pytest

from odradek.workers.net.bounded_log import BoundedLog

log = logging.getLogger(__name__)


def test_one_line_a_minute_is_logged_for_each_key(caplog: pytest.LogCaptureFixture) -> None:
    bounded = BoundedLog(log, logging.WARNING, "rejected connections", 1, 60)
    for number in range(1000):
        bounded.write(120.0 + number / 100, "SSL", "rejected %d", number)
    bounded.write(121.0, "PLAINTEXT", "rejected another")
    assert caplog.messages == ["rejected 0", "rejected another"]
    bounded.tick(179.9)
    assert len(caplog.messages) == 2
    bounded.tick(180.0)
    assert caplog.messages[2:] == ["999 more rejected connections on SSL within 60 s are not logged"]
    bounded.tick(240.0)
    bounded.write(300.0, "SSL", "rejected again")
    assert caplog.messages[3:] == ["rejected again"]


def test_next_line_comes_with_the_count_of_omitted_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bounded = BoundedLog(log, logging.INFO, "failed authentications", 2, 1)
    for at in (5.0, 5.5, 5.9, 6.0):
        bounded.write(at, "", "at %s", at)
    assert caplog.messages == [
        "at 5.0", "at 5.5", "1 more failed authentications within a second are not logged", "at 6.0",
    ]  # fmt: skip


def test_keys_are_forgotten_after_their_period(caplog: pytest.LogCaptureFixture) -> None:
    bounded = BoundedLog(log, logging.WARNING, "x", 1, 60)
    bounded.write(60.0, "a", "a")
    bounded.tick(120.0)
    assert not bounded._lines
