"""Sanitized names in znodes, in cases that the comparison with Kafka's class (quotas/test_as_kafka.py) lacks."""

from __future__ import annotations

import pytest

from odradek.security.sanitizer import desanitize, sanitize


def test_names_are_percent_encoded() -> None:
    assert sanitize("a.b-c_d*e~f g+h%") == "a.b-c_d%2Ae%7Ef%20g%2Bh%25"
    assert desanitize("a.b-c_d%2Ae%7Ef%20g%2Bh%25+i") == "a.b-c_d*e~f g+h% i"


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert sanitize("a\ud800b") == "a%3Fb"


@pytest.mark.parametrize("name", ["a%2", "%", "%zz", "a%2 0"])
def test_incomplete_percent_encoding_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="two hexadecimal digits"):
        desanitize(name)
