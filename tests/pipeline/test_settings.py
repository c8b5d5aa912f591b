"""Numbers in client settings: values that no request or socket accepts are refused in one line."""

from __future__ import annotations

import pytest

from odradek.pipeline.errors import OptionError
from odradek.pipeline.wire.settings import MOST_FETCHED, Settings


def of(**kafka: str) -> Settings:
    """Settings; `__` stands for a dot in a name."""
    return Settings.of({"bootstrap.servers": "h:9092", **{key.replace("__", "."): text for key, text in kafka.items()}})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fetch__max__bytes", str(2**31)),
        ("max__partition__fetch__bytes", "-1"),
        ("fetch__max__wait__ms", "soon"),
        ("fetch__max__wait__ms", "9" * 5000),
        ("retry__backoff__ms", "0.5"),
        ("request__timeout__ms", "0"),
        ("socket__connection__setup__timeout__ms", "0"),
    ],
)
def test_invalid_numbers_are_refused(name: str, wrong: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name.replace('__', '.')} is .*: it must be a number from"):
        of(**{name: wrong})


def test_smallest_and_largest_numbers_are_accepted() -> None:
    least = of(request__timeout__ms="1", retry__backoff__ms="0", fetch__max__wait__ms="0", fetch__max__bytes="0")
    assert (least.request_timeout, least.backoff, least.fetch_wait_ms, least.fetch_bytes) == (0.001, 0, 0, 0)
    assert of(request__timeout__ms=str(2**31 - 1)).request_timeout == 2147483.647


def test_fetch_size_is_limited_to_the_largest_response() -> None:
    most = str(2**31 - 1)
    assert of(fetch__max__bytes=most, max__partition__fetch__bytes=most).fetch_bytes == MOST_FETCHED
