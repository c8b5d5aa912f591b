"""Parse the values of options; an error is one line that says what is wrong.

Durations and sizes are written as in Spark's own settings: `90s`, `15m`, `128m`, `1g`.
"""

from __future__ import annotations

import re

from odradek.pipeline.errors import OptionError
from odradek.protocol.wire import INT32_MAX, INT64_MAX

INT, LONG = INT32_MAX, INT64_MAX  # the largest numbers that Spark and Kafka have

_WITH_UNIT = re.compile(r"(\d{1,18})\s*([a-z]*)")
_MS = {"us": 0.001, "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"": 1, "b": 1} | {
    unit: 1024**power for power, letter in enumerate("kmgtp", 1) for unit in (letter, f"{letter}b")
}


def flag(name: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not '{text}'")
    return word == "true"


def positive(name: str, text: str, most: int = LONG) -> int:
    """A whole number above zero."""
    number = _natural(text)
    if number <= 0:
        raise OptionError(f"{name} must be a whole number above 0, not '{text}'")
    if number > most:
        raise OptionError(f"{name} must be at most {most}, not '{text}'")
    return number


def natural(name: str, text: str, most: int = LONG) -> int:
    """A whole number from 0."""
    number = _natural(text)
    if not 0 <= number <= most:
        raise OptionError(f"{name} must be a whole number from 0 to {most}, not '{text}'")
    return number


def timestamp(name: str, text: str) -> int:
    """Milliseconds since 1970; a broker gives negative ones another meaning."""
    number = _natural(text)
    if not 0 <= number <= LONG:
        raise OptionError(f"{name} must be milliseconds since 1970, not '{text}'")
    return number


def duration(name: str, text: str) -> int:
    """Milliseconds of `15m`, `90s`, `2h`, `500` (ms)."""
    return int(_measured(name, text, _MS, "a duration such as 90s, 15m or 2h"))


def size(name: str, text: str) -> int:
    """Bytes of `128m`, `1g`, `65536`; not 0."""
    found = int(_measured(name, text, _BYTES, "a size such as 64m or 1g"))
    if found == 0:
        raise OptionError(f"{name} must be a size above 0, not '{text}'")
    return found


def one_of(name: str, text: str, words: tuple[str, ...]) -> str:
    """One of `words`, in any case."""
    word = text.strip().lower()
    if word not in words:
        raise OptionError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not '{text}'")
    return word


def _natural(text: str) -> int:
    """-1 where it is no number from 0. Of a number too long for LONG the first digits, which are too large as well."""
    word = text.strip()
    return int(word.lstrip("0")[:20] or "0") if word.isascii() and word.isdigit() else -1


def _measured(name: str, text: str, units: dict[str, float] | dict[str, int], meant: str) -> float:
    found = _WITH_UNIT.fullmatch(text.strip().lower())
    if not found or found[2] not in units:
        raise OptionError(f"{name} must be {meant}, not '{text}'")
    return int(found[1]) * units[found[2]]
