"""The words and options of a line of ZooKeeper's shell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_WORD = re.compile(r"""\s*([^"']\S*|"[^"]*"|'[^']*')\s*""")
_QUOTED = re.compile(r"""(['"])(.*)\1""", re.DOTALL)

COMMANDS = {
    "addauth": "addauth scheme auth",
    "close": "close ",
    "create": "create [-s] [-e] path [data] [acl]",
    "delete": "delete [-v version] path",
    "deleteall": "deleteall path [-b batch size]",
    "get": "get [-s] [-w] path",
    "getAcl": "getAcl [-s] path",
    "history": "history ",
    "ls": "ls [-s] [-w] [-R] path",
    "quit": "quit ",
    "set": "set [-s] [-v version] path data",
    "stat": "stat [-w] path",
}
# The argument that 3.4 takes behind the path, the option that it became, and what ZooKeeper says about that.
_OLD = {
    "ls": ("-w", "'ls path [watch]' has been deprecated. Please use 'ls [-w] path' instead."),
    "get": ("-w", "'get path [watch]' has been deprecated. Please use 'get [-s] [-w] path' instead."),
    "stat": ("-w", "'stat path [watch]' has been deprecated. Please use 'stat [-w] path' instead."),
    "delete": ("-v", "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead."),
    "set": ("-v", ""),
}
_VALUED = {"-v", "-b"}
_LEAST = {"addauth": 1, "set": 2, "history": 0, "close": 0, "quit": 0}


class Malformed(Exception):
    """A line that is no command; the text says how it would be."""


class Line(NamedTuple):
    """A command with its options and what remains: a path, data, an ACL."""

    options: dict[str, str]  # the value of each; "" for one without a value
    rest: list[str]
    warning: str  # about the form of 3.4

    def number(self, option: str, default: int = -1) -> int:
        """The value of an option that is a number. Malformed."""
        try:
            return int(self.options.get(option, default))
        except ValueError:
            raise Malformed(f'For input string: "{self.options[option]}"') from None


def words_of(line: str) -> list[str]:
    """The words of a line; quotes join several, and go."""
    found = [match[1] for match in _WORD.finditer(line)]
    return [quoted[2] if (quoted := _QUOTED.fullmatch(word)) else word for word in found]


def parsed(words: Sequence[str]) -> Line:
    """The options of a known command, wherever they are. Malformed, with the usage."""
    usage = COMMANDS[words[0]]
    options, rest = _split(words[1:], usage)
    if len(rest) < _LEAST.get(words[0], 1):
        raise Malformed(usage)
    kept = 2 if words[0] == "set" else 1
    if words[0] not in _OLD or len(rest) <= kept:
        return Line(options, rest, "")
    option, warning = _OLD[words[0]]
    options[option] = rest[kept] if option in _VALUED else ""
    return Line(options, rest[:kept], warning)


def _split(words: Sequence[str], usage: str) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if f"[{word}]" in usage:
            options[word] = ""
        elif word in _VALUED and f"[{word} " in usage and left:
            options[word] = left.pop(0)
        elif word.startswith("-") and not rest:
            raise Malformed(usage)
        else:
            rest.append(word)
    return options, rest


def check_path(path: str) -> str:
    """The path, if ZooKeeper takes it. Malformed."""
    if not path:
        raise Malformed("Path length must be > 0")
    if not path.startswith("/"):
        raise Malformed("Path must start with / character")
    if len(path) > 1 and path.endswith("/"):
        raise Malformed("Path must not end with / character")
    at = 0
    for part in path.split("/")[1:] if len(path) > 1 else ():
        at += 1
        if part in ("", ".", ".."):
            what = "relative paths not allowed" if part else "empty node name specified"
            raise Malformed(f'Invalid path string "{path}" caused by {what} @{at + max(0, len(part) - 1)}')
        at += len(part)
    return path
