"""Types, checks and texts of configuration values, with the rules of Kafka's ConfigDef.

A value has a text (in files, in the metadata tree and on the wire) and a typed form (in code). All errors are
ConfigError, and their messages name the key, the bad value and the valid values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)  # the wire's ConfigType ids
TYPE_NAMES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")

HIGH, MEDIUM, LOW = "HIGH", "MEDIUM", "LOW"
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

NO_EFFECT = "No effect in this broker."  # prefix of an unused config's documentation; `odradek configs` looks for it

_BITS = {SHORT: 15, INT: 31, LONG: 63}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
BLANKS = "".join(map(chr, range(0x21)))  # the characters that Java's trim removes

Check = Callable[[Any], "str | None"]  # takes a typed value; returns what is wrong with it (None: nothing)


class ConfigError(ValueError):
    """An invalid configuration value; the message names the key, the value and what to change."""


class ConfigKey(NamedTuple):
    """One row of a configuration table."""

    name: str
    type: int
    default: str | None  # as text; None: no value
    importance: str
    doc: str
    check: Check | None = None
    mode: str = READ_ONLY  # how Kafka's brokers can change it at run time
    works: bool = True  # False: known from Kafka, accepted and shown, but never read here
    internal: bool = False  # accepted, but listed only where it is set

    @property
    def sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type == PASSWORD

    @property
    def change(self) -> str:
        """How this broker can change it at run time: as in Kafka, unless a change would have no effect here."""
        return self.mode if self.works else READ_ONLY

    @property
    def documentation(self) -> str:
        """`doc`, with the prefix NO_EFFECT when the config has no effect here."""
        return self.doc if self.works else f"{NO_EFFECT} {self.doc}"


def invalid(name: str, value: object, why: str) -> ConfigError:
    """The error for `value` of `name`, in one line, with Kafka's wording for scripts that match it."""
    shown = str(value)
    if not shown.isprintable():
        shown = shown.encode("unicode_escape").decode()
    return ConfigError(f"Invalid value {shown} for configuration {name}: {why}")


def parse_value(key: ConfigKey, text: str | None) -> Any:
    """The typed value of `text` (None stays None), checked; ConfigError when it is invalid."""
    if text is None:
        if key.default is not None:
            raise invalid(key.name, "null", "a value is required")
        return None
    shown = "[hidden]" if key.sensitive else text.strip()
    if "\0" in text:  # invalid in file names
        raise invalid(key.name, shown, "must not contain NUL")
    value = _convert(key, text)
    problem = key.check(value) if key.check is not None else None
    if problem is not None:
        raise invalid(key.name, shown, problem)
    return value


def _convert(key: ConfigKey, text: str) -> Any:
    if key.type == PASSWORD:
        return text
    text = text.strip(BLANKS)
    if key.type == BOOLEAN:
        return _boolean(key.name, text)
    if key.type in _BITS:
        return _integer(key, text)
    if key.type == DOUBLE:
        return _double(key.name, text)
    if key.type == LIST:
        return [part.strip(BLANKS) for part in text.split(",")] if text else []
    return text


def _boolean(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise invalid(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer(key: ConfigKey, text: str) -> int:
    bits = _BITS[key.type]
    if not _INTEGER.fullmatch(text) or not -(1 << bits) <= int(text) < 1 << bits:
        raise invalid(key.name, text, f"Not a number of type {TYPE_NAMES[key.type]}")
    return int(text)


def _double(name: str, text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise invalid(name, text, "Not a number of type DOUBLE")
    return float(text.rstrip("fFdD"))


def to_text(kind: int, value: Any) -> str | None:
    """The text of a typed value, as Kafka writes it on the wire (`true`, `1.0E-5`, `a,b`)."""
    if value is None:
        return None
    if kind == BOOLEAN:
        return "true" if value else "false"
    if kind == DOUBLE:
        return _double_text(float(value))
    if kind == LIST:
        return ",".join(value)
    return str(value)


def _double_text(value: float) -> str:
    """Java's Double.toString: plain between 1e-3 and 1e7, otherwise a mantissa and an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or math.isinf(value):
        return repr(value).replace("inf", "Infinity")
    digits, exponent = f"{value:.17e}".split("e")
    for precision in range(1, 18):  # the shortest digits that read back as the same number
        digits, exponent = f"{value:.{precision}e}".split("e")
        if float(f"{digits}e{exponent}") == value:
            break
    return f"{digits}E{int(exponent)}"


def at_least(low: float) -> Check:
    """A number of at least `low`."""

    def check(value: Any) -> str | None:
        return f"Value must be at least {low}" if value is not None and value < low else None

    return check


def between(low: float, high: float) -> Check:
    """A number from `low` to `high`, both included."""

    def check(value: Any) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return check


def or_value(extra: float, inner: Check) -> Check:
    """`extra`, or any value that `inner` accepts."""

    def check(value: Any) -> str | None:
        problem = inner(value)
        return f"{problem}, or {extra} for the default" if problem and value != extra else None

    return check


def one_of(*allowed: str) -> Check:
    """One of the words in `allowed`."""

    def check(value: Any) -> str | None:
        return None if value in allowed else f"String must be one of: {', '.join(allowed)}"

    return check


def list_of(*allowed: str) -> Check:
    """A comma-separated list of words in `allowed`."""

    def check(value: Any) -> str | None:
        wrong = [part for part in value if part not in allowed]
        return f"String must be one of: {', '.join(allowed)}" if wrong else None

    return check


def matches(pattern: str, description: str) -> Check:
    """A text that matches `pattern`; `description` describes it in words."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str | None:
        parts: Iterable[str] = value if isinstance(value, list) else [value]
        return None if all(compiled.fullmatch(part) for part in parts) else f"must be {description}"

    return check


def not_empty(value: Any) -> str | None:
    """A value that is not empty."""
    return None if value is None or value else "must not be empty"
