"""`ssl.principal.mapping.rules`: from the name in a certificate to the principal, as Kafka's SslPrincipalMapper.

The patterns are Java's regular expressions. What Python writes in another way is translated; unsupported syntax is
refused at the start, so that no other principal than in Java can result.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from odradek.security.principal import ANONYMOUS, USER, Principal

from . import distinguished_names

DEFAULT = "DEFAULT"
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)
_LINE_ENDS = frozenset("\n\r\x85\u2028\u2029")  # Java's `.` and `$` accept more of them than Python's
_BLANKS = "".join(map(chr, range(0x21)))  # the characters that Java's trim removes
_JAVA = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\k<(?P<back>\w+)>|\\(?P<escape>.)|(?P<group>\(\?<(?![=!]))", re.DOTALL
)
_TRANSLATED = {"z": r"\Z", "Z": r"(?=\n?\Z)", "h": r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]"}
_SAME = frozenset("0123456789wWdDsSbBAtnrfaux")  # escapes that mean the same in both


class MappingError(ValueError):
    """Rules that cannot work; the text says what to change."""


class NoMatchingRule(ValueError):
    """No rule matches this name, so the connection has no principal and is closed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; the pattern must match the whole name, and is then replaced wherever it is found."""

    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    case: str  # "L", "U" or "" for the name as it is

    def apply(self, name: str) -> str | None:
        """The principal's name, None when the rule does not match `name`."""
        if _LINE_ENDS & set(name) or not self.pattern.fullmatch(name):
            return None
        found = self.pattern.sub(self.replacement, name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: str | None) -> None:
        """Parse `rules`. Raises MappingError."""
        self._rules = [rule for word in split(rules if rules is not None else DEFAULT) if (rule := _parse(word))]

    def name(self, distinguished_name: str) -> str:
        """The name that the first rule matching `distinguished_name` makes. Raises NoMatchingRule."""
        for rule in self._rules:
            found = distinguished_name if isinstance(rule, str) else rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules is about {distinguished_name}")

    def principal(self, certificate: bytes | None) -> Principal:
        """The principal of a peer's certificate in DER; ANONYMOUS for a peer that gave none. Raises NoMatchingRule."""
        if not certificate:
            return ANONYMOUS
        return Principal(USER, self.name(distinguished_names.subject(certificate)))


def split(rules: str) -> list[str]:
    """The rules of the setting; commas within a rule do not divide."""
    return [found[1] for found in _SPLITTER.finditer(rules.strip(_BLANKS))]


def _parse(text: str) -> Rule | str | None:
    """A rule, DEFAULT, or None for an empty one."""
    found = _PARSER.match(text)
    if found is None or found.end() != len(text):
        raise MappingError(f"{text!r} is no rule: write RULE:pattern/replacement/[LU] or DEFAULT")
    if found[1] is not None:
        return DEFAULT
    if found[2] is None:
        return None
    pattern = _compile(found[2])
    return Rule(pattern, _replacement(_keep_unknown_references(found[4], pattern.groups), pattern), found[6])


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # sets within sets, which only Java knows
            return re.compile(_to_python(pattern), re.ASCII)
    except (re.error, Warning, OverflowError) as error:
        raise MappingError(f"the pattern {pattern!r} cannot be used: {error}; write it in another way") from None


def _to_python(pattern: str) -> str:
    return _JAVA.sub(_translated, pattern)


def _translated(found: re.Match[str]) -> str:
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    if found["back"]:
        return f"(?P={found['back']})"
    if found["group"]:
        return "(?P<"
    escape = found["escape"]
    if escape.isalnum() and escape not in _SAME and escape not in _TRANSLATED:
        raise re.error(f"\\{escape} is not supported")
    return _TRANSLATED.get(escape, found[0])


def _keep_unknown_references(replacement: str, groups: int) -> str:
    """Make `$4` literal where the pattern has three groups, by Kafka's own steps (and offsets)."""
    value = replacement
    for found in _REFERENCE.finditer(replacement) if groups else ():
        if found[1].startswith("0"):
            continue
        index = int(found[1])
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            at = found.start()
            value = f"{value[:at]}\\{value[at:]}"
    return value


def _replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """Java's replacement: `\\x` is x, `$1` and `${name}` are groups."""
    parts = list(_parts(text, pattern))
    return lambda found: "".join(part if isinstance(part, str) else found[part[0]] or "" for part in parts)


def _parts(text: str, pattern: re.Pattern[str]) -> list[str | tuple[int | str]]:
    parts: list[str | tuple[int | str]] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            parts.append(text[at + 1 : at + 2] or _wrong(text, "a character must follow the last backslash"))
            at += 2
        elif text[at] == "$":
            reference, at = _reference(text, at + 1, pattern)
            parts.append((reference,))
        else:
            parts.append(text[at])
            at += 1
    return parts


def _reference(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int | str, int]:
    """The group that `$` refers to, and where the text goes on: as many digits as there are groups for."""
    if named := re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(text, at):
        if named[1] not in pattern.groupindex:
            _wrong(text, f"the pattern has no group {named[1]}")
        return named[1], named.end()
    if not text[at : at + 1].isascii() or not text[at : at + 1].isdigit():
        _wrong(text, "a number or a {name} must follow $; write \\$ for the character")
    index, at = int(text[at]), at + 1
    if index > pattern.groups:
        _wrong(text, f"the pattern has no group {index}")
    while at < len(text) and text[at] in "0123456789" and index * 10 + int(text[at]) <= pattern.groups:
        index, at = index * 10 + int(text[at]), at + 1
    return index, at


def _wrong(replacement: str, why: str) -> str:
    raise MappingError(f"the replacement {replacement!r} cannot be used: {why}")
