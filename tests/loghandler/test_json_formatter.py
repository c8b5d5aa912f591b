"""A log record as a JSON object: its fields, and what JSON cannot hold as text."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest

from odradek.logging import JsonFormatter


class Unprintable:
    """Its `str()` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def record(message: object = "hello", *arguments: object, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "/srv/shop.py", 7, message, arguments, None, extra=extra
    )
    made.created = 1700000000.125
    return made


def formatted(made: logging.LogRecord, **fields: Any) -> dict[str, Any]:
    """Strict: without NaN, which is no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    text = JsonFormatter(fields).format(made)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def test_object_has_the_fields_of_the_record() -> None:
    found = formatted(record("paid %d", 5), service="shop")
    assert found.pop("host") and found.pop("process") and found.pop("thread")
    assert found == {
        "service": "shop",
        "timestamp": "2023-11-14T22:13:20.125Z",
        "level": "INFO",
        "logger": "shop",
        "message": "paid 5",
        "file": "/srv/shop.py:7",
    }


def test_exception_and_stack_are_text() -> None:
    made = record()
    try:
        raise ValueError("no money")
    except ValueError as error:
        made.exc_info = (type(error), error, error.__traceback__)
    made.stack_info = "Stack (most recent call last):\n  here"
    found = formatted(made)
    assert found["exception"].startswith("Traceback") and found["exception"].endswith("ValueError: no money")
    assert found["stack"].endswith("here")


def test_extra_values_are_in_an_object_of_their_own() -> None:
    assert formatted(record(order=7, tags=["a", None], level="theirs"))["extra"] == {
        "order": 7,
        "tags": ["a", None],
        "level": "theirs",
    }


def _circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _deep(levels: int) -> Any:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ({1: math.inf, (2, 3): "x"}, {"1": "inf", "(2, 3)": "x"}),
        ({"a": {5}}, {"a": "{5}"}),
        (Unprintable(), "<Unprintable: str() raised RuntimeError>"),
        ([Unprintable(), math.nan], ["<Unprintable: str() raised RuntimeError>", "nan"]),
        (2**80, 2**80),
        (ValueError("bad"), "bad"),
    ],
    ids=["bytes", "nan", "infinity", "keys", "set", "unprintable", "unprintable in a list", "integer", "exception"],
)
def test_values_that_json_cannot_hold_become_text(value: Any, expected: Any) -> None:
    assert formatted(record(value=value))["extra"]["value"] == expected


@pytest.mark.parametrize("value", [_circle(), _deep(5000)], ids=["circle", "deep"])
def test_endless_values_become_text_at_some_depth(value: Any) -> None:
    assert "extra" in formatted(record(value=value))


def test_message_without_its_arguments_raises_as_in_every_formatter() -> None:
    with pytest.raises(TypeError):
        JsonFormatter().format(record("paid %d and %d", 5))
