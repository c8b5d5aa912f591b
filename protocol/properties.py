"""Java's `.properties` syntax, the format of `server.properties`.

Source of the rules: `java.util.Properties.load` (its Javadoc): `#` and `!` comments, a backslash at the
end of a line continues it, keys end at the first unescaped `=`, `:` or blank, `\\uXXXX` escapes.
Java reads ISO-8859-1; today's editors write UTF-8, so this tries UTF-8 first and falls back to ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A key is anything except a separator; a backslash includes the next character.
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class PropertiesError(ValueError):
    """A line that Java refuses as well; the message says which and why."""


def load(path: Path) -> dict[str, str]:
    """Read a properties file. Raises OSError, or PropertiesError with the file's name in it."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        return parse(text)
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def parse(text: str) -> dict[str, str]:
    """Parse the text of a properties file; the last value of a repeated key wins."""
    return dict(_pair(line) for line in _logical_lines(text))


def text_of(settings: Mapping[str, str]) -> str:
    """The text that `parse` reads as these settings, a line each. Keys have no blank, `=` or `:`, as Kafka's."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    """`value` with escapes for what a line cannot hold: backslashes, line breaks, and blanks before all else."""
    text = value.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    return f"\\{text}" if text.startswith(" ") else text


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        if _continues(line):
            pending = (pending or "") + line[:-1]
            continue
        yield (pending or "") + line
        pending = None
    if pending:
        yield pending


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _pair(line: str) -> tuple[str, str]:
    key = _KEY.match(line)
    assert key is not None  # the pattern also matches nothing
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    return _unescape(key.group(), line), _unescape(line[separator.end() :], line)


def _unescape(text: str, line: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _character(found.group(1), line), text)


def _character(escape: str, line: str) -> str:
    if escape == "u":
        raise PropertiesError(f"a \\u needs four hexadecimal digits: {line!r}")
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)
