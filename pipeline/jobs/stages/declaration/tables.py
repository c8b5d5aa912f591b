"""Parse a table of a TOML file key by key, and collect mistakes, one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.pipeline.jobs.stages.declaration.sql import quoted

_SPAN = re.compile(r"\d+ (microsecond|millisecond|second|minute|hour|day|week)s?")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
SPAN, TOPIC, TOPICS, TEXT = "a span such as '10 minutes'", "a topic", "a topic or a list of topics", "a text"


class Table:
    """Methods take values by key; `left` then reports keys that were not taken.

    An invalid value is a mistake, and treated as missing.
    """

    def __init__(self, where: str, values: Mapping[str, Any], mistakes: list[str], path: str = "") -> None:
        self._where, self._values, self._mistakes, self._path = where, values, mistakes, path
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def wrong(self, key: str, what: str) -> None:
        """Note a mistake of `key`."""
        name = f"{self._path}{key}"
        self._mistakes.append(": ".join(filter(None, (self._where, name, what))))

    def missing(self, key: str, what: str) -> None:
        """Note that `key` is missing: `what` it would be."""
        near = difflib.get_close_matches(key, [name for name in self._values if name not in self._known], 1)
        if not near:  # else that one is reported as unknown
            self.wrong(key, f"is missing: {what}")

    def text(self, key: str, what: str = TEXT, required: bool = False) -> str | None:
        """A text that is not blank."""
        return self._take_text(key, what, required, lambda value: isinstance(value, str) and bool(value.strip()))

    def separator(self, key: str) -> str | None:
        """A text that may be blank, such as a tab."""
        return self._take_text(key, TEXT, False, lambda value: isinstance(value, str) and bool(value))

    def quote(self, key: str) -> str | None:
        """A character, or an empty text for none."""
        return self._take_text(
            key, "one character, or '' for none", False, lambda value: isinstance(value, str) and len(value) < 2
        )

    def span(self, key: str) -> str | None:
        """A span of time, as Spark writes it."""
        return self._take_text(key, SPAN, False, lambda value: isinstance(value, str) and bool(_SPAN.fullmatch(value)))

    def topic(self, key: str, what: str = TOPIC, required: bool = False) -> str | None:
        """A valid topic name."""
        return self._take_text(key, what, required, _is_topic)

    def topics(self, key: str) -> tuple[str, ...]:
        """One or several topic names."""
        found = self._take(key, TOPICS, True, lambda value: _is_topic(value) or _is_list(value, _is_topic))
        return (found,) if isinstance(found, str) else tuple(found or ())

    def texts(self, key: str, what: str, required: bool = False) -> tuple[str, ...]:
        """A list of texts, not empty."""
        return tuple(self._take(key, what, required, lambda value: _is_list(value, _is_text)) or ())

    def number(self, key: str) -> int | None:
        """A whole number above 0."""
        found: int | None = self._take(
            key, "a whole number above 0", False, lambda value: type(value) is int and value > 0
        )
        return found

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        found = self._take(key, "true or false", False, lambda value: isinstance(value, bool))
        return default if found is None else bool(found)

    def one_of(self, key: str, words: Sequence[str], required: bool = False) -> str | None:
        """One of `words`, the first where none is given."""
        found: str | None = self._take(key, f"{', '.join(words[:-1])} or {words[-1]}", required, words.__contains__)
        return words[0] if found is None and not required else found

    def expressions(self, key: str, required: bool = False) -> dict[str, str]:
        """A table of expressions by name."""
        found = self._take(key, "a table of expressions", required, lambda value: isinstance(value, dict)) or {}
        for name, expression in found.items():
            if not _is_text(expression):
                self.wrong(f"{key}.{name}", f"must be an expression, not {_shown(expression)}")
        return {name: expression for name, expression in found.items() if _is_text(expression)}

    def named(self, key: str, what: str) -> dict[str, str]:
        """A table of expressions by name, or a list of columns that keep their names."""
        found = self._values.get(key)
        return (
            self.expressions(key) if isinstance(found, dict) else {name: quoted(name) for name in self.texts(key, what)}
        )

    def table(self, key: str) -> Table | None:
        """The table under `key`."""
        found = self._take(key, "a table", False, lambda value: isinstance(value, dict))
        return None if found is None else self._below(f"{key}.", found)

    def tables(self, key: str) -> list[Table]:
        """One table or an array of them."""
        found = self._take(key, "a table", False, lambda value: isinstance(value, dict) or _is_list(value, _is_table))
        if isinstance(found, dict):
            return [self._below(f"{key}.", found)]
        return [self._below(f"{key}[{at}].", each) for at, each in enumerate(found or (), 1)]

    def stages(self, key: str) -> list[Table]:
        """The array of tables under `key`, each reported by its name."""
        found = self._take(key, f"an array of tables, [[{key}]]", False, lambda value: _is_list(value, _is_table))
        named = [(each.get("name") or f"{at}", each) for at, each in enumerate(found or (), 1)]
        return [Table(f"{key} {name}", each, self._mistakes) for name, each in named]

    def flat(self, key: str, what: str) -> dict[str, str]:
        """A table whose nested tables are joined by dots, its values as text."""
        found = self._take(key, what, True, lambda value: isinstance(value, dict)) or {}
        return dict(_flattened(found))

    def left(self) -> None:
        """Note each key that was not taken, with the one that may be meant."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(self._known))}"
                self.wrong(key, f"unknown key; {hint}")

    def _below(self, path: str, values: Mapping[str, Any]) -> Table:
        return Table(self._where, values, self._mistakes, self._path + path)

    def _take_text(self, key: str, what: str, required: bool, right: Callable[[Any], bool]) -> str | None:
        found: str | None = self._take(key, what, required, right)
        return found

    def _take(self, key: str, what: str, required: bool, right: Callable[[Any], bool]) -> Any:
        self._known.append(key)
        value = self._values.get(key)
        if value is not None and right(value):
            return value
        if value is not None:
            self.wrong(key, f"must be {what}, not {_shown(value)}")
        elif required:
            self.missing(key, what)
        return None


def _shown(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_topic(value: Any) -> bool:
    return isinstance(value, str) and bool(_TOPIC.fullmatch(value)) and value not in (".", "..")


def _is_list(value: Any, each: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(each, value))


def _flattened(values: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flattened(value, f"{path}{key}.")
        else:
            found.append((path + key, str(value).lower() if isinstance(value, bool) else str(value)))
    return found
