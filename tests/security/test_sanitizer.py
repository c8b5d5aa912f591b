"""Names in nodes, in cases that a comparison with Kafka's class (quotas/test_as_kafka.py) does not have."""

from __future__ import annotations

import pytest

from odradek.security.sanitizer import desanitize, sanitize


def test_names_in_nodes() -> None:
    assert sanitize("a.b-c_d*e~f g+h%") == "a.b-c_d%2Ae%7Ef%20g%2Bh%25"
    assert desanitize("a.b-c_d%2Ae%7Ef%20g%2Bh%25+i") == "a.b-c_d*e~f g+h% i"


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert sanitize("a\ud800b") == "a%3Fb"


@pytest.mark.parametrize("name", ["a%2", "%", "%zz", "a%2 0"])
def test_a_name_that_kafka_does_not_write(name: str) -> None:
    with pytest.raises(ValueError, match="two hexadecimal digits"):
        desanitize(name)
